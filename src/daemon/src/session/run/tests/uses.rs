//! What a program uses of the processors, and who pays for it.

use super::*;
use crate::tenants::{ProgramCredit, TenantShare};

const SECOND: Duration = Duration::from_secs(1);

/// A sink that never has room for more.
struct Full;

impl OutputSink for Full {
    fn resumed(&mut self, _: u64) {}
    fn take(&mut self, _: paddock_proto::OutputStream, _: Bytes) {}
    fn is_kept(&self) -> bool {
        true
    }
    fn poll_room(&self, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        std::task::Poll::Pending
    }
}

/// A credit of a tenant beside which there is another.
async fn credit(world: &World) -> (ProgramCredit, ProgramCredit) {
    let (tenants, share) =
        (&world.sessions.bounds().tenants, TenantShare { tenants: 2, ..TenantShare::default() });
    let credit = tenants.begin_program(share, true, SECOND).await.unwrap();
    (credit, tenants.resume_program(share))
}

fn about(left: Option<f64>, seconds: f64) -> bool {
    left.is_some_and(|left| (left - seconds).abs() < 0.2)
}

#[tokio::test(start_paused = true)]
async fn a_program_is_paid_for_while_it_goes_on_also_if_nobody_reads_its_output() {
    let container = FakeContainer::scripted("c1", |script| {
        let output = Step::Write(Channel::Stdout, Bytes::from_static(b"unread"));
        script.run = vec![Step::UntilEof(Channel::Code), output, Step::UntilToldToEnd, Step::Say(ended())];
        script.meter = [850_000, 900_000].map(|cpu_us| Step::Say(Event::Used { cpu_us })).to_vec();
    });
    let world = World::new(&[&container]).await;
    let (turn, (credit, other)) = (world.turn().await, credit(&world).await);
    let (cancel, request, mut sink) = (CancellationToken::new(), code(), Full);
    let control = Control::end_only(&cancel);
    let running = world.sessions.runs().execute(&turn, &request, credit, control, &mut sink);
    let charged = async {
        // 0.25 for the container, and 1.75 in its two messages; it had saved 2.
        while !about(other.left(), 0.0) {
            tokio::time::sleep(SECOND / 100).await;
        }
        cancel.cancel();
    };
    let (report, charged) = tokio::join!(running, tokio::time::timeout(TIMEOUT / 2, charged));
    charged.expect("the credits are spent while it goes on");
    assert_eq!(report.unwrap().end, exited(0));
}

#[tokio::test(start_paused = true)]
async fn a_short_program_has_no_meter_and_pays_at_its_end() {
    let container = FakeContainer::scripted("c1", |script| {
        let end = RunEnd { metered_us: 1_000_000, ..end_of_run() };
        script.run = vec![Step::UntilEof(Channel::Code), Step::Say(Event::Ended(end))];
    });
    let world = World::new(&[&container]).await;
    let (turn, (credit, other)) = (world.turn().await, credit(&world).await);
    world.sessions.runs().execute(&turn, &code(), credit, end_only(), &mut Ignore).await.unwrap();
    assert!(about(other.left(), 0.75), "a container, and a second: {:?}", other.left());
    container.until(|request| matches!(request, Request::Commit)).await;
    assert_eq!(container.count(|request| matches!(request, Request::Meter)), 0);
}
