//! The questions of one run, with a client of a few lines.

use super::*;

const BOUNDS: AskBounds = AskBounds { questions: 2, within: Duration::from_secs(60) };

fn name(text: &str) -> Host {
    Host::Name(text.parse().unwrap())
}

fn asking(asker: Option<Asker>) -> Arc<RunApproval> {
    Arc::new(RunApproval::new(asker, Arc::default(), BOUNDS))
}

/// A client that answers each question by its destination; what it was asked.
fn client(mut questions: Questions, allows: &'static str) -> tokio::task::JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(question) = questions.next().await {
            let destination = question.destination();
            question.answer(destination == allows);
            all.push(destination);
        }
        all
    })
}

#[tokio::test]
async fn a_destination_is_asked_for_once_and_a_yes_is_of_the_whole_session() {
    let (asker, questions) = questions();
    let client = client(questions, "a.example:443");
    let run = asking(Some(asker));
    for _ in 0..3 {
        assert_eq!(run.decide("run", &name("a.example"), 443).await, Decision::Yes);
        assert_eq!(run.decide("run", &name("a.example"), 80).await, Decision::No);
    }
    assert_eq!(run.decide("run", &name("b.example"), 443).await, Decision::AskedEnough);
    let later = RunApproval::new(None, run.approved.clone(), BOUNDS);
    assert_eq!(later.decide("run", &name("a.example"), 443).await, Decision::Yes);
    assert_eq!(later.decide("run", &name("a.example"), 80).await, Decision::Nobody);
    let host_name = |text: &str| text.parse::<HostName>().unwrap();
    assert!(later.may_need(&host_name("a.example")) && !later.may_need(&host_name("sub.a.example")));
    drop(run);
    assert_eq!(client.await.unwrap(), ["a.example:443", "a.example:80"]);
}

#[tokio::test]
async fn programs_that_ask_for_the_same_share_one_question() {
    let (asker, questions) = questions();
    let client = client(questions, "a.example:443");
    let run = asking(Some(asker));
    let ask = || {
        let run = run.clone();
        tokio::spawn(async move { run.decide("run", &name("a.example"), 443).await })
    };
    for decided in [ask(), ask(), ask(), ask()] {
        assert_eq!(decided.await.unwrap(), Decision::Yes);
    }
    drop(run);
    assert_eq!(client.await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_a_no_and_a_client_that_is_gone_was_not_asked() {
    let (asker, mut questions) = questions();
    let run = asking(Some(asker));
    let silent = tokio::spawn(async move {
        let mut question = questions.next().await.unwrap();
        question.abandoned().await;
        questions
    });
    assert_eq!(run.decide("run", &name("a.example"), 443).await, Decision::No);
    let questions = silent.await.unwrap();
    let unknown: HostName = "b.example".parse().unwrap();
    assert!(run.may_need(&unknown));
    drop(questions);
    assert!(!run.may_need(&unknown));
    assert_eq!(run.decide("run", &name("b.example"), 443).await, Decision::Nobody);
    assert_eq!(run.asked.lock().await.questions, 1);
}

#[tokio::test]
async fn a_program_that_went_away_has_used_up_its_question() {
    let (asker, mut questions) = questions();
    let run = asking(Some(asker));
    let (a, b, c) = (name("a.example"), name("b.example"), name("c.example"));
    for host in [&a, &b] {
        tokio::select! {
            _ = run.decide("run", host, 443) => panic!("nobody has answered"),
            question = async {
                let question = questions.next().await.unwrap();
                assert!(question.message().contains(&question.destination()));
                tokio::task::yield_now().await;
                question
            } => drop(question),
        }
    }
    assert_eq!(run.decide("run", &c, 443).await, Decision::AskedEnough);
}

#[test]
fn an_address_of_version_6_is_shown_with_brackets() {
    let (answer, _answered) = oneshot::channel();
    let host = Host::Address("2001:db8::1".parse().unwrap());
    assert_eq!(Question { host, port: 80, answer }.destination(), "[2001:db8::1]:80");
}

#[test]
fn what_a_session_has_allowed_is_bounded() {
    let approved = Approved::default();
    for n in 0..2 * MAX_APPROVED {
        approved.add((name(&format!("{n}.example")), 443));
    }
    assert_eq!(approved.0.lock().unwrap().len(), MAX_APPROVED);
}
