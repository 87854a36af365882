//! `bootstrap` while S3 takes connections and never answers.

use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use crate::bootstrap::{Account, Machine};

#[tokio::test]
async fn a_launch_is_abandoned_at_once_although_s3_does_not_take_the_report() {
    let mut account = Account::new().await;
    // The kernel accepts connections, and nobody reads them.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    account.storage = Some(format!("http://{}", silent.local_addr().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    // A volume of somebody else's: no try helps.
    machine.file(&machine.device(&account), vec![7; 2 << 20]);
    let bootstrap = machine.bootstrap(&account).await.unwrap();
    let abandoned = async {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(40) {
            let asked = account.groups.received();
            if asked.iter().any(|one| String::from_utf8_lossy(&one.body).contains("=ABANDON")) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    };
    tokio::select! {
        done = bootstrap.run() => panic!("S3 does not answer, and {done:?}"),
        abandoned = abandoned => assert!(abandoned),
    }
}
