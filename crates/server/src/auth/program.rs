//! Passwords checked by a program of the operator.
//!
//! The program is started for each check, without a shell, with only PATH in its environment; it reads user and
//! password on standard input, each followed by NUL. Exit status 0 means yes, 1 means no, any other status means that
//! it could not decide. Its output is discarded. A program that takes too long is killed.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use zeroize::Zeroizing;

use super::users::Answer;

/// For machines that start us without a PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Asks the program `argv` about a prepared user and password.
///
/// # Cancel safety
/// Dropping the future kills the program.
pub(super) async fn check(argv: &[String], time_max: Duration, user: &str, password: &str) -> Answer {
    let Some((program, arguments)) = argv.split_first() else { return Answer::Unknown };
    let failed = |what: &dyn std::fmt::Display| Answer::Failed(format!("auth.program {program:?}: {what}"));
    let started = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| PATH.into()))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return failed(&format_args!("cannot be started: {error}; name it with its full path")),
    };
    let mut input = child.stdin.take();
    let asked = tokio::time::timeout(time_max, async {
        if let Some(mut input) = input.take() {
            let question = Zeroizing::new([user.as_bytes(), b"\0", password.as_bytes(), b"\0"].concat());
            // A program that does not read still answers with its exit status.
            drop(input.write_all(&question).await);
        }
        child.wait().await
    });
    let status = match asked.await {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return failed(&error),
        Err(_) => {
            // The wait reaps it; a process that does not die even so is left to the runtime.
            drop(child.start_kill());
            return failed(&format_args!(
                "no answer within {time_max:?} and killed; raise auth.program_time_max or make it faster"
            ));
        }
    };
    answer(status).unwrap_or_else(|| failed(&format_args!("{status}, but 0 means yes and 1 no")))
}

fn answer(status: ExitStatus) -> Option<Answer> {
    match status.code() {
        Some(0) => Some(Answer::Right),
        Some(1) => Some(Answer::Wrong),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn shell(script: &str, time_max: Duration) -> Answer {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        check(&argv, time_max, "anna", "it's a $(secret)").await
    }

    #[tokio::test]
    async fn exit_status_decides() {
        assert_eq!(shell("exit 0", LONG).await, Answer::Right);
        assert_eq!(shell("exit 1", LONG).await, Answer::Wrong);
        for script in ["exit 2", "kill -9 $$"] {
            let Answer::Failed(reason) = shell(script, LONG).await else { panic!("{script}") };
            assert!(reason.contains("but 0 means yes and 1 no"), "{reason}");
        }
    }

    #[tokio::test]
    async fn user_and_password_come_on_standard_input() {
        let script = r#"test "$(tr '\0' '|')" = "anna|it's a \$(secret)|""#;
        assert_eq!(shell(script, LONG).await, Answer::Right);
    }

    #[tokio::test]
    async fn nothing_else_is_handed_over() {
        // The shell itself adds PWD, OLDPWD, SHLVL and _.
        let script = r#"test "$PWD" = / && test -z "$(env | grep -Ev '^(PATH|PWD|OLDPWD|SHLVL|_)=')""#;
        assert_eq!(shell(script, LONG).await, Answer::Right);
    }

    #[tokio::test]
    async fn a_slow_program_is_killed() {
        let Answer::Failed(reason) = shell("exec sleep 1000", Duration::from_millis(1)).await else { panic!() };
        assert!(reason.contains("no answer within 1ms"), "{reason}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let Answer::Failed(reason) = check(&["/nonexistent/check".to_owned()], LONG, "u", "p").await else { panic!() };
        assert!(reason.starts_with("auth.program \"/nonexistent/check\": cannot be started"), "{reason}");
    }
}
