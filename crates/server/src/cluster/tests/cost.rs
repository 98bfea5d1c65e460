//! The rate of appends and scans, for docs/cluster.md.

use super::*;
use testkit::nats::Options;
use tokio::time::Instant;

#[tokio::test]
#[ignore = "a measurement"]
async fn appends_one_after_the_other() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = log(&servers).await;
    let mut last = 0;
    for octets in [4 << 10, 64 << 10, 256 << 10] {
        let (block, began, mut times) = (Bytes::from(vec![7; octets]), Instant::now(), Vec::with_capacity(3_000));
        while began.elapsed() < Duration::from_secs(5) && times.len() < 3_000 {
            let sent = Instant::now();
            let reply = ask(&log, LogOperation::Append { expected_last: last, block: block.clone() }).await;
            times.push(sent.elapsed());
            last += 1;
            assert_eq!(reply, LogReply::Appended { sequence: last });
        }
        let rate = f64::from(u32::try_from(times.len()).unwrap()) / began.elapsed().as_secs_f64();
        times.sort_unstable();
        let [half, most] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at]);
        println!("{octets} octets: {rate:.0} blocks/s, p50 {half:?}, p99 {most:?}");
        assert_eq!(ask(&log, LogOperation::Trim { upto: last }).await, LogReply::Trimmed);
    }
    let block = Bytes::from(vec![7; 256 << 10]);
    for _ in 0..400 {
        ask(&log, LogOperation::Append { expected_last: last, block: block.clone() }).await;
        last += 1;
    }
    let (began, mut from, mut octets) = (Instant::now(), 1, 0);
    loop {
        let reply = ask(&log, LogOperation::Scan { from, octets_max: 1 << 20 }).await;
        let LogReply::Scanned { blocks, is_end } = reply else { panic!("{reply:?}") };
        octets += blocks.iter().map(|(_, block)| block.len()).sum::<usize>();
        from = blocks.last().map_or(from, |(sequence, _)| sequence + 1);
        if is_end {
            break;
        }
    }
    println!("scan: {} MiB in {:?}", octets >> 20, began.elapsed());
}

#[tokio::test]
#[ignore = "a measurement"]
async fn reads_and_writes_of_keys() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let store = store(&servers).await;
    let (mut puts, mut lists, mut last) = (Vec::new(), Vec::new(), 0);
    for _ in 0..300 {
        let sent = Instant::now();
        last = revision(&put(&store, "node/1", "an entry of some size", last, Some(Duration::from_secs(15))).await);
        puts.push(sent.elapsed());
        let sent = Instant::now();
        assert!(matches!(list(&store, "node/").await, CoordinationReply::Listed(_)));
        lists.push(sent.elapsed());
    }
    for (name, mut times) in [("put", puts), ("list", lists)] {
        times.sort_unstable();
        let [half, most] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at]);
        println!("{name}: p50 {half:?}, p99 {most:?}");
    }
}
