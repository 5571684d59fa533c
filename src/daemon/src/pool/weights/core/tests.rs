use super::*;

const OWING: TenantId = TenantId(1);
const QUIET: TenantId = TenantId(2);

/// A machine on which containers are looked at.
struct Stand {
    core: WeightsCore,
    sights: BTreeMap<MemberId, ContainerSight>,
    engine_processors: usize,
    engine_converts: bool,
    owes: bool,
    daemon: f64,
    now: Instant,
}

impl Stand {
    fn new() -> Self {
        Self {
            core: WeightsCore::default(),
            sights: BTreeMap::new(),
            engine_processors: 8,
            engine_converts: false,
            owes: false,
            daemon: 0.0,
            now: Instant::now(),
        }
    }

    /// A tenant takes a container, in which so many programs run from now on.
    fn take(&mut self, member: u64, id: TenantId, sight: ContainerSight) -> MemberId {
        let tenant = TenantShare { id, tenants: 2, ..TenantShare::default() };
        self.core.take(MemberId(member), tenant, true);
        self.sights.insert(MemberId(member), sight);
        MemberId(member)
    }

    fn after(&mut self, passed: Duration) -> LookChanges {
        self.now += passed;
        let owes = self.owes;
        let context = LookContext {
            now: self.now,
            engine_processors: self.engine_processors,
            engine_converts: self.engine_converts,
            owes: &|tenant| owes && tenant.id == OWING,
            daemon: self.daemon,
            parts: &|owing| owing.contains(&OWING).then_some(0.1),
        };
        self.core.look(&self.sights, context)
    }

    /// What the engine is asked for after that, and does.
    fn asks(&mut self, passed: Duration) -> Vec<(u64, ContainerChange)> {
        let LookChanges { here, by_engine } = self.after(passed);
        assert!(here.is_empty(), "{here:?}");
        for (member, change) in &by_engine {
            self.core.was_given(*member, *change);
        }
        by_engine.into_iter().map(|(member, change)| (member.0, change)).collect()
    }
}

/// A container whose control group this machine does not have.
fn far(programs: usize) -> ContainerSight {
    ContainerSight { programs, ..ContainerSight::default() }
}

/// One whose control group can be written here, with so many processors.
fn near(processors: usize) -> ContainerSight {
    ContainerSight { programs: 1, has_group: true, processors: Some(processors), ..far(1) }
}

fn weight(weight: u64) -> ContainerChange {
    ContainerChange { weight: Some(weight), confinement: None }
}

fn confinement(to: Confinement) -> ContainerChange {
    ContainerChange { weight: None, confinement: Some(to) }
}

fn both(shares: u64, to: Confinement) -> ContainerChange {
    ContainerChange { weight: Some(shares), confinement: Some(to) }
}

#[test]
fn the_engine_is_asked_only_for_containers_in_which_programs_are_at_work() {
    let mut stand = Stand::new();
    stand.take(1, OWING, far(1));
    stand.take(2, OWING, far(1));
    let third = stand.take(3, OWING, far(0));
    assert_eq!(stand.asks(Duration::ZERO), [], "a run that ends soon is not worth a call");
    assert_eq!(stand.asks(LOOK / 2), []);
    let half = weight(WHOLE / 2);
    assert_eq!(stand.asks(LOOK / 2), [(1, half), (2, half)]);
    assert_eq!(stand.asks(LOOK), [], "they were given that");
    stand.sights.insert(third, far(1));
    assert_eq!(stand.asks(LOOK), []);
    let thirds = stand.asks(LOOK);
    assert_eq!(thirds.iter().map(|(member, _)| *member).collect::<Vec<_>>(), [1, 2, 3], "{thirds:?}");
    stand.core.leave(MemberId(1));
    stand.core.leave(MemberId(2));
    assert_eq!(stand.asks(LOOK), [(3, weight(WHOLE))]);
}

#[test]
fn a_container_counts_as_working_in_the_pauses_between_its_programs() {
    let mut stand = Stand::new();
    let one = stand.take(1, OWING, far(1));
    stand.take(2, OWING, far(1));
    assert_eq!((stand.asks(Duration::ZERO).len(), stand.asks(LOOK).len()), (0, 2));
    stand.sights.insert(one, far(0));
    assert_eq!(stand.asks(WORKS - LOOK), [], "a pause");
    assert_eq!(stand.asks(LOOK * 2), [(1, weight(WHOLE)), (2, weight(WHOLE))], "only the other one works");
}

#[test]
fn short_programs_one_after_the_other_are_work_too() {
    let mut stand = Stand::new();
    let one = stand.take(1, OWING, far(1));
    stand.take(2, OWING, far(1));
    assert_eq!(
        (stand.asks(Duration::ZERO).len(), stand.asks(LOOK / 4).len()),
        (0, 0),
        "two looks at one of them"
    );
    for _ in 0..3 {
        stand.sights.insert(one, far(0));
        assert_eq!(stand.asks(LOOK / 4), []);
    }
    stand.sights.insert(one, far(1));
    assert_eq!(stand.asks(LOOK / 4), [(1, weight(WHOLE / 2)), (2, weight(WHOLE / 2))]);
}

#[test]
fn control_groups_of_this_machine_are_written_before_the_first_program_works() {
    let mut stand = Stand::new();
    let one = stand.take(1, OWING, near(4));
    stand.take(2, QUIET, near(4));
    stand.owes = true;
    let changes = stand.after(Duration::ZERO);
    assert_eq!(changes.here, BTreeMap::from([(one, both(WHOLE / 4, Confinement::Last(3)))]));
    assert!(changes.by_engine.is_empty());
    // Nobody has said that it was made.
    assert_eq!(stand.after(LOOK / 2).here.keys().copied().collect::<Vec<_>>(), [one]);
}

#[test]
fn a_tenant_that_owes_leaves_processors_to_each_container_of_others_that_works() {
    let mut stand = Stand::new();
    stand.owes = true;
    let one = stand.take(1, OWING, near(8));
    for (member, programs) in [(2, 1), (3, 1), (4, 0)] {
        stand.take(member, QUIET, ContainerSight { programs, ..near(8) });
    }
    let left = |stand: &mut Stand, passed| {
        let change = stand.after(passed).here.remove(&one).unwrap_or_default();
        stand.core.was_given(one, change);
        change.confinement
    };
    assert_eq!(left(&mut stand, Duration::ZERO), Some(Confinement::Last(7)), "nothing works yet");
    assert_eq!(left(&mut stand, LOOK), Some(Confinement::Last(5)), "two work");
    assert_eq!(left(&mut stand, LOOK), None, "it has that");
}

#[test]
fn a_debt_is_remembered_for_ten_seconds() {
    let mut stand = Stand::new();
    stand.take(1, OWING, far(1));
    stand.take(2, QUIET, far(1));
    assert_eq!((stand.asks(Duration::ZERO).len(), stand.asks(LOOK).len()), (0, 0));
    stand.owes = true;
    assert_eq!(stand.asks(LOOK), [(1, both(WHOLE / 4, Confinement::Last(6)))]);
    stand.owes = false;
    assert_eq!(stand.asks(WORKS - LOOK), []);
    assert_eq!(stand.asks(LOOK), [(1, both(WHOLE, Confinement::All))]);
}

#[test]
fn an_engine_that_confines_nothing_is_asked_for_weights_alone() {
    let mut stand = Stand::new();
    (stand.engine_processors, stand.owes) = (0, true);
    stand.take(1, OWING, far(1));
    stand.take(2, QUIET, far(1));
    // An earlier daemon may have confined this one, and nobody can say so.
    stand.core.take(MemberId(3), TenantShare { id: QUIET, tenants: 2, ..TenantShare::default() }, false);
    assert_eq!(stand.asks(Duration::ZERO), [(3, weight(WHOLE))]);
    assert_eq!(stand.asks(LOOK), [(1, weight(WHOLE / 4))]);
}

#[test]
fn an_engine_that_converts_weights_gives_each_container_that_works_one_of_its_own() {
    let mut stand = Stand::new();
    stand.engine_converts = true;
    stand.take(1, OWING, far(1));
    stand.take(2, QUIET, far(1));
    stand.take(3, QUIET, far(0));
    assert_eq!(stand.asks(Duration::ZERO), []);
    assert_eq!(stand.asks(LOOK), [(1, weight(WHOLE)), (2, weight(WHOLE))], "whole as the engine converts it");
    assert_eq!(stand.asks(LOOK), []);
}

#[test]
fn a_container_with_fewer_processors_than_others_is_not_confined_to_more() {
    let mut stand = Stand::new();
    stand.owes = true;
    let (one, two) = (stand.take(1, OWING, near(8)), stand.take(2, OWING, near(4)));
    stand.take(3, QUIET, near(8));
    let here = stand.after(Duration::ZERO).here;
    assert_eq!(here[&one].confinement, Some(Confinement::Last(7)));
    assert_eq!(here[&two].confinement, None);
}

#[test]
fn what_the_engine_did_not_change_is_asked_for_again_after_a_while() {
    let mut stand = Stand::new();
    stand.owes = true;
    let one = stand.take(1, OWING, far(1));
    stand.take(2, QUIET, far(1));
    stand.after(Duration::ZERO);
    assert_eq!(stand.asks(LOOK), [(1, both(WHOLE / 4, Confinement::Last(6)))]);
    stand.take(3, TenantId(3), far(1));
    assert_eq!(stand.asks(LOOK), []);
    let less = BTreeMap::from([(one, confinement(Confinement::Last(5)))]);
    assert_eq!(stand.after(LOOK).by_engine, less);
    stand.core.was_refused(one, stand.now);
    assert_eq!(stand.after(AGAIN - LOOK), LookChanges::default());
    let all = both(WHOLE / 4, Confinement::Last(5));
    assert_eq!(stand.asks(LOOK), [(1, all)], "nobody knows what it was given");
}

#[test]
fn a_container_of_an_earlier_daemon_is_weighed_although_nothing_works_in_it() {
    let mut stand = Stand::new();
    let alone = TenantShare { id: OWING, ..TenantShare::default() };
    stand.core.take(MemberId(1), alone, true);
    assert!(!stand.core.has_to_look(), "it is as it was made");
    stand.core.take(MemberId(2), alone, false);
    assert!(stand.core.has_to_look());
    assert_eq!(stand.asks(Duration::ZERO), [(2, both(WHOLE, Confinement::All))]);
    assert!(!stand.core.has_to_look());
}

#[test]
fn what_somebody_else_wrote_in_place_of_a_look_is_written_again_and_nothing_else() {
    let mut stand = Stand::new();
    stand.owes = true;
    let (one, other) = (stand.take(1, OWING, near(2)), stand.take(2, QUIET, near(2)));
    let given = both(WHOLE / 4, Confinement::Last(1));
    assert_eq!(stand.after(Duration::ZERO).here, BTreeMap::from([(one, given)]));
    stand.core.was_given(one, given);
    assert_eq!(stand.after(LOOK), LookChanges::default());
    let confined = BTreeMap::from([(one, confinement(Confinement::Last(1)))]);
    for cpuset in [CpusetSight::Confined(Confinement::All), CpusetSight::Other] {
        for member in [one, other] {
            stand.sights.insert(member, ContainerSight { cpuset, ..near(2) });
        }
        assert_eq!(stand.after(LOOK).here, confined, "nothing has confined the other one");
        stand.core.was_given(one, confined[&one]);
    }
    stand.sights.insert(one, ContainerSight { weighs: Some(WHOLE), ..near(2) });
    assert_eq!(stand.after(LOOK).here, BTreeMap::from([(one, weight(WHOLE / 4))]));
}

#[test]
fn a_tenant_that_was_alone_has_neighbours_as_soon_as_another_one_takes_a_container() {
    let mut stand = Stand::new();
    let alone = TenantShare { id: OWING, ..TenantShare::default() };
    for member in [1, 2] {
        stand.core.take(MemberId(member), alone, true);
        stand.sights.insert(MemberId(member), far(1));
    }
    assert_eq!((stand.asks(Duration::ZERO).len(), stand.asks(LOOK).len()), (0, 0));
    stand.take(3, QUIET, far(1));
    assert_eq!(stand.asks(LOOK), [(1, weight(WHOLE / 2)), (2, weight(WHOLE / 2))]);
}

#[test]
fn the_processors_of_the_daemon_are_left_to_it_and_what_is_confined_is_known_until_the_contrary_is() {
    let mut stand = Stand::new();
    let one = stand.take(1, OWING, near(16));
    let _ = stand.take(2, QUIET, near(16));
    (stand.owes, stand.daemon) = (true, 3.0);
    let changes = stand.after(LOOK).here;
    let (computes_on_three, one_works) = (4, 0);
    let left = Confinement::Last(16 - computes_on_three - one_works);
    assert_eq!(changes[&one].confinement, Some(left));
    assert_eq!(stand.core.confinement(one), Confinement::All, "nobody has said that it was made");
    stand.core.was_given(one, changes[&one]);
    assert_eq!(stand.core.confinement(one), left);
    stand.core.was_refused(one, stand.now);
    assert_eq!(stand.core.confinement(one), left, "as it was last known");
    stand.core.leave(one);
    assert_eq!(stand.core.confinement(one), Confinement::All);
}
