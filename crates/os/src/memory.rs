//! How the kernel gives memory to this process.

/// Has the kernel give memory in pages of the usual size from now on, also to children.
///
/// An allocator that asks for huge pages gets two mebibytes at a time, which the kernel fills with zeroes first. A
/// process that takes and gives back buffers of some hundred kibibytes all the time pays for that again and again. A
/// system that refuses is as before.
pub fn use_small_pages() {
    rustix::thread::disable_transparent_huge_pages(true).unwrap_or(());
}

#[cfg(test)]
mod tests {
    #[test]
    fn huge_pages_are_off_for_the_process() {
        super::use_small_pages();
        assert!(rustix::thread::transparent_huge_pages_are_disabled().unwrap());
    }
}
