//! Looks at tasks, in time that does not pass.

use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
}

fn upid(pid: &str) -> Upid {
    format!("UPID:pve1:{pid}:00BC614E:679A423B:qmstart:112:capmox@pve!capi:").parse().unwrap()
}

#[test]
fn a_task_is_looked_at_until_it_ends_and_then_kept_until_forgotten() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    tasks.follow(key("a"), upid("000ACD12"), Operation::Start, start);
    assert!(tasks.take_due(start).is_empty());
    let later = start + Duration::from_secs(1);
    assert_eq!(tasks.take_due(later).len(), 1);
    let (a, task) = (key("a"), upid("000ACD12"));
    assert_eq!(tasks.looked(&a, &task, Ok(None), later), Looked::Nothing);
    assert_eq!(tasks.looked(&a, &task, Ok(Some(Exit::Success)), later), Looked::End);
    assert!(tasks.next_due().is_none());
    assert!(matches!(tasks.state(&key("a")), Some(TaskState::Ended(_))));
    tasks.forget(&key("a"));
    assert!(tasks.state(&key("a")).is_none());
}

#[test]
fn what_takes_long_is_not_looked_at_too_soon_and_many_are_looked_at_more_often() {
    let start = Instant::now();
    let due = |operation| {
        let mut tasks = Tasks::default();
        tasks.follow(key("a"), upid("000ACD12"), operation, start);
        tasks.next_due().unwrap().at - start
    };
    assert_eq!(due(Operation::Clone), Duration::from_millis(500));
    assert_eq!(due(Operation::Stop), SHORTEST);
    assert_eq!(due(Operation::Resize), QUICK);
    let age = Duration::from_secs(6);
    for (many, expected) in [(1, 1000), (MANY, 1000), (MANY * 2, 500), (MANY * 20, 333)] {
        assert_eq!(pause(age, None, many).as_millis(), expected, "{many}");
    }
    let usual = Some(Duration::from_secs(7));
    assert_eq!(pause(age, usual, MANY * 20), Duration::from_secs(1), "known before");
    // Those that ended are looked at no more, though their machines still remember them.
    let mut tasks = Tasks::default();
    for number in 0..MANY * 3 {
        let (ended, task) = (key(&format!("b{number}")), upid("000ACD13"));
        tasks.follow(ended.clone(), task.clone(), Operation::Stop, start);
        tasks.looked(&ended, &task, Ok(Some(Exit::Success)), start);
    }
    tasks.follow(key("a"), upid("000ACD12"), Operation::Clone, start);
    tasks.looked(&key("a"), &upid("000ACD12"), Ok(None), start + age);
    assert_eq!(tasks.next_due().map(|due| due.at), Some(start + age + Duration::from_secs(1)));
}

#[test]
fn an_answer_about_an_older_task_is_dropped() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    tasks.follow(key("a"), upid("000ACD12"), Operation::Stop, now);
    tasks.follow(key("a"), upid("000ACD13"), Operation::Destroy, now);
    let older = tasks.looked(&key("a"), &upid("000ACD12"), Ok(Some(Exit::Success)), now);
    assert_eq!(older, Looked::Nothing);
    assert!(matches!(tasks.state(&key("a")), Some(TaskState::Running { .. })));
}

#[test]
fn one_list_tells_of_all_tasks_and_the_rest_are_asked_for_once_they_should_be_in_it() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    for (name, pid) in [("a", "000ACD12"), ("b", "000ACD13"), ("c", "000ACD14")] {
        tasks.follow(key(name), upid(pid), Operation::Start, start);
    }
    let look_up = |asked: &Upid| match asked {
        one if *one == upid("000ACD12") => Some(Listed::Ended(&Exit::Success)),
        one if *one == upid("000ACD13") => Some(Listed::Running),
        _ => None,
    };
    let soon = start + Duration::from_millis(200);
    let due = tasks.take_due(soon);
    assert_eq!(tasks.listed(&due, soon, look_up), (vec![key("a")], Vec::new()));
    let later = start + LISTED;
    let due = tasks.take_due(later);
    assert_eq!(
        tasks.listed(&due, later, look_up),
        (Vec::new(), vec![(key("c"), upid("000ACD14"))])
    );
    assert!(matches!(tasks.state(&key("b")), Some(TaskState::Running { .. })));
}

#[test]
fn a_node_that_falls_silent_is_found_out_though_its_tasks_are_listed_as_running() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    let (a, task) = (key("a"), upid("000ACD12"));
    tasks.follow(a.clone(), task.clone(), Operation::Clone, start);
    let mut told = 0;
    let mut asked = |after: u64| {
        let now = start + Duration::from_secs(after);
        let due = tasks.take_due(now);
        let (_, own) = tasks.listed(&due, now, |_| Some(Listed::Running));
        if own.is_empty() {
            return false;
        }
        let answer = if after < 30 { Ok(None) } else { Err("no route".to_owned()) };
        told += usize::from(tasks.looked(&a, &task, answer, now) == Looked::Silence);
        true
    };
    let times: Vec<u64> = (1..90).filter(|after| asked(*after)).collect();
    assert!(times[0] >= 10 && times[1] >= 20 && times[2] >= 40, "{times:?}");
    assert!(times.len() > 6, "and again until it answers: {times:?}");
    assert_eq!(told, 1);
}

#[test]
fn a_look_without_an_answer_does_not_end_a_task() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    tasks.follow(key("a"), upid("000ACD12"), Operation::Stop, now);
    let (a, task, no_route) = (key("a"), upid("000ACD12"), || Err("no route".to_owned()));
    assert_eq!(tasks.looked(&a, &task, no_route(), now), Looked::Silence);
    assert_eq!(tasks.looked(&a, &task, no_route(), now), Looked::Nothing, "told once");
    let Some(TaskState::Running { trouble, .. }) = tasks.state(&key("a")) else {
        panic!("ended without an answer")
    };
    assert_eq!(trouble.as_deref(), Some("no route"));
    let later = now + PATIENCE;
    assert_eq!(tasks.looked(&a, &task, no_route(), later), Looked::End);
    let Some(TaskState::Ended(ended)) = tasks.state(&key("a")) else { panic!("for ever") };
    assert!(matches!(ended.exit, Exit::Unknown(_)), "and even then it is not known how");
}

#[test]
fn what_takes_next_to_no_time_is_looked_at_at_once_until_it_takes_longer() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    let mut quick = |name: &str, took: Duration| {
        let task = upid("000ACD14");
        tasks.follow(key(name), task.clone(), Operation::Configure, start);
        let due = tasks.next_due().unwrap();
        tasks.looked(&key(name), &task, Ok(Some(Exit::Success)), start + took);
        due.quick_at.map(|at| at - start)
    };
    assert_eq!(quick("a", Duration::from_millis(50)), Some(QUICK));
    assert_eq!(quick("b", Duration::from_secs(2)), Some(Duration::from_millis(50).mul_f32(0.97)));
    assert_eq!(quick("c", QUICK), None, "the last one took two seconds");
}
