//! The pair that stands ready in a container, against an agent of a few lines.

use super::*;

/// What is at the other end of the standing pair.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    /// An agent.
    Agent,
    /// Nothing that ever answers.
    Nobody,
    /// There is no pair.
    Missing,
    /// There is no such process.
    Gone,
    /// An agent for one moment, and then no such process.
    Ends,
}

/// Has a standing pair, and can be dialed too.
struct Ready {
    other: Other,
    dialed: Arc<AtomicUsize>,
    stood: AtomicBool,
}

impl Dial for Ready {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        self.dialed.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(carrier_with(greeting(Vec::new()), true)) })
    }

    fn wants_direct(&self) -> bool {
        true
    }

    fn standing(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        let has_ended = self.other == Other::Ends && self.stood.swap(true, Ordering::Relaxed);
        let other = if has_ended { Other::Gone } else { self.other };
        Box::pin(async move {
            match other {
                Other::Agent => Ok(carrier_with(greeting(Vec::new()), false)),
                Other::Nobody => Ok(carrier_with(BytesMut::new(), false)),
                Other::Ends => {
                    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
                    tokio::spawn(async move { theirs.write_all(&greeting(Vec::new())).await });
                    let (from, to) = tokio::io::split(ours);
                    Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>))
                }
                Other::Gone => Err(DialError::Gone("no such process".to_owned())),
                Other::Missing => Err(DialError::Failed("no such descriptor".to_owned())),
            }
        })
    }
}

/// An agent that checks whether the hello asks for an offer, answers with this, and stays.
fn carrier_with(answer: BytesMut, asks: bool) -> Carrier {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let mut heard = BytesMut::new();
        let hello: Hello = loop {
            if let Some(frame) = Frame::decode(&mut heard).unwrap() {
                break message::decode(&frame.payload).unwrap();
            }
            assert!(theirs.read_buf(&mut heard).await.unwrap() > 0, "no hello");
        };
        let answer = if hello.direct == asks { answer } else { BytesMut::from(&b"asked wrongly"[..]) };
        theirs.write_all(&answer).await.unwrap();
        std::future::pending::<()>().await;
    });
    let (from, to) = tokio::io::split(ours);
    (Box::new(from), Box::new(to))
}

async fn open(other: Other) -> (Result<(Link, Greeting), LinkError>, usize) {
    let dialed = Arc::new(AtomicUsize::new(0));
    let opened =
        Link::open(Ready { other, dialed: dialed.clone(), stood: AtomicBool::new(false) }, terms()).await;
    (opened, dialed.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_container_with_a_standing_pair_is_not_dialed() {
    let (opened, dialed) = open(Other::Agent).await;
    let (link, greeting) = opened.unwrap();
    assert!(greeting.ran && link.is_direct(), "{greeting:?}");
    assert_eq!(dialed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_standing_pair_is_missing_or_silent_is_dialed_and_asked_for_an_offer() {
    for other in [Other::Missing, Other::Nobody, Other::Gone] {
        let (opened, dialed) = open(other).await;
        assert!(opened.is_ok());
        assert_eq!(dialed, 1);
    }
}

#[tokio::test]
async fn a_container_that_had_a_standing_pair_and_whose_process_has_ended_is_not_dialed() {
    let dialed = Arc::new(AtomicUsize::new(0));
    let ends = Ready { other: Other::Ends, dialed: dialed.clone(), stood: AtomicBool::new(false) };
    let (link, _) = Link::open(ends, terms()).await.unwrap();
    let lost = tokio::time::timeout(REDIAL_FOR / 2, link.lost()).await.expect("it is given up at once");
    assert_eq!(lost.to_string(), "the container's agent could not be reached: no such process");
    assert_eq!(dialed.load(Ordering::Relaxed), 0);
}
