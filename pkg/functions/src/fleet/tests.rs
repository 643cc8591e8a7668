use super::*;
use crate::scale::Phase;
use serde_json::json;

/// A function and its fleet, with virtual time.
struct Table {
    fleet: Fleet,
    definition: Arc<Definition>,
    now: Instant,
}

impl Table {
    fn new(spec: serde_json::Value) -> Table {
        let definition = definition(spec);
        Table { fleet: Fleet::new(PodKey::new(b"key"), 100), definition, now: Instant::now() }
    }

    fn call(&mut self) -> Result<Place, Refusal> {
        self.fleet.call(&self.definition, self.now)
    }

    fn waits(&mut self) -> oneshot::Receiver<Result<Granted, Refusal>> {
        match self.call() {
            Ok(Place::Waiting(receiver)) => receiver,
            Ok(Place::Granted(_)) => panic!("a pod takes it"),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn created(&mut self) -> Vec<Arc<Link>> {
        let actions = self.fleet.take_actions().into_iter();
        actions
            .filter_map(|action| if let Action::Create(link) = action { Some(link) } else { None })
            .collect()
    }

    fn deleted(&mut self) -> Vec<(Key, bool)> {
        let actions = self.fleet.take_actions().into_iter();
        let deleted =
            |action| if let Action::Delete { pod, at_once } = action { Some((pod, at_once)) } else { None };
        actions.filter_map(deleted).collect()
    }

    fn ready(&mut self, link: &Arc<Link>) {
        link.times.lock().ready = Some(self.now);
        self.fleet.ready(link, self.now);
    }

    fn ended(&mut self, link: &Arc<Link>, outcome: Outcome) {
        self.fleet.ended(link, outcome, self.now);
    }
}

fn definition(spec: serde_json::Value) -> Arc<Definition> {
    let function = json!({"metadata": {"namespace": "a", "name": "f", "uid": "u"}, "spec": spec});
    let mut function: api::kinds::minik8s::Function = serde_json::from_value(function).expect("a function");
    let spec = &mut function.spec;
    spec.runtime = "python".to_owned();
    for (field, default) in
        [(&mut spec.concurrency, 1), (&mut spec.idle_seconds, 30), (&mut spec.limits.queue_length, 10)]
    {
        if *field == 0 {
            *field = default;
        }
    }
    Arc::new(Definition::new(Arc::new(function)))
}

const MS: Duration = Duration::from_millis(1);

fn answered() -> Outcome {
    Outcome::Answered(10 * MS)
}

#[test]
fn calls_are_served_in_the_order_in_which_they_came() {
    let mut table = Table::new(json!({"code": "x", "maxReplicas": 1}));
    let (mut first, mut second) = (table.waits(), table.waits());
    let [link] = table.created().try_into().unwrap_or_else(|_| panic!("one pod"));
    table.ready(&link);
    let granted = first.try_recv().expect("told").expect("granted");
    assert!(granted.is_cold && second.try_recv().is_err());
    table.ended(&link, answered());
    assert!(second.try_recv().expect("told").is_ok());
}

#[test]
fn who_has_left_the_queue_takes_no_place() {
    let mut table = Table::new(json!({"code": "x", "maxReplicas": 1}));
    let (first, mut second) = (table.waits(), table.waits());
    let links = table.created();
    drop(first);
    table.ready(&links[0]);
    assert!(second.try_recv().expect("told").is_ok());
    table.ended(&links[0], answered());
    assert!(matches!(table.call(), Ok(Place::Granted(_))), "the pod is free");
}

#[test]
fn a_full_queue_refuses_and_those_who_left_make_room() {
    let mut table = Table::new(json!({"code": "x", "limits": {"queueLength": 2}}));
    let (_first, second) = (table.waits(), table.waits());
    assert!(matches!(table.call(), Err(refusal) if refusal.status == 429 && refusal.retry_after.is_some()));
    drop(second);
    table.waits();
}

#[test]
fn a_pod_that_fails_to_start_answers_all_who_wait() {
    let mut table = Table::new(json!({"code": "x"}));
    let mut waiting: Vec<_> = (0..2).map(|_| table.waits()).collect();
    let links = table.created();
    table.fleet.failed(&links[0], Fault::new("ImportFailed", "no module"), table.now);
    for receiver in &mut waiting {
        let refusal = receiver.try_recv().expect("told").err().expect("refused");
        assert_eq!((refusal.status.as_u16(), refusal.fault.reason.as_str()), (500, "ImportFailed"));
    }
    assert_eq!(table.deleted(), [(links[0].pod.clone(), true)]);
    assert!(table.fleet.desks.is_empty(), "nothing is remembered of it but why");
    assert_eq!(table.fleet.counts(&table.definition.key).1.expect("a fault").reason, "ImportFailed");
    table.waits();
    assert_eq!(table.created().len(), 1, "who calls next tries again, at once");
}

#[test]
fn a_pod_that_is_lost_to_a_call_goes_and_takes_no_other() {
    let mut table = Table::new(json!({"code": "x", "concurrency": 2}));
    let (mut first, mut second) = (table.waits(), table.waits());
    let links = table.created();
    table.ready(&links[0]);
    assert!(first.try_recv().expect("told").is_ok() && second.try_recv().expect("told").is_ok());
    table.ended(&links[0], Outcome::Lost);
    assert!(table.deleted().is_empty(), "another call is under way in it");
    table.waits();
    assert_eq!(table.created().len(), 1, "and it takes no more");
    table.ended(&links[0], answered());
    assert_eq!(table.deleted(), [(links[0].pod.clone(), false)]);
}

#[test]
fn another_revision_drains_the_pods_of_before() {
    let mut table = Table::new(json!({"code": "x"}));
    let _first = table.waits();
    let links = table.created();
    table.ready(&links[0]);
    table.definition = definition(json!({"code": "y"}));
    table.fleet.defined(table.definition.clone(), table.now);
    assert!(table.deleted().is_empty(), "what is under way ends first");
    let _second = table.waits();
    assert_ne!(table.created()[0].definition.revision, links[0].definition.revision);
    table.ended(&links[0], answered());
    assert_eq!(table.deleted(), [(links[0].pod.clone(), false)]);
}

#[test]
fn an_idle_pod_goes_when_its_time_has_come_and_nothing_is_looked_at_then() {
    let mut table = Table::new(json!({"code": "x"}));
    let _call = table.waits();
    let links = table.created();
    table.ready(&links[0]);
    table.ended(&links[0], answered());
    let mut looks = 0;
    while let Some(at) = table.fleet.look(table.now) {
        assert!(at > table.now, "it would look for ever");
        (table.now, looks) = (at, looks + 1);
    }
    assert_eq!(table.deleted(), [(links[0].pod.clone(), false)]);
    assert!(table.fleet.desks.is_empty() && looks <= 4, "{looks}");
    table.fleet.found(Some(table.definition.clone()), &links[0].pod, &table.definition.revision, table.now);
    assert!(table.fleet.desks.is_empty(), "one that is being deleted is not taken on again");
}

#[test]
fn pods_of_before_are_taken_on_if_they_are_of_the_present_revision() {
    let mut table = Table::new(json!({"code": "x"}));
    let (good, old) = (Key::new("a", "f-1"), Key::new("a", "f-0"));
    table.fleet.found(Some(table.definition.clone()), &good, &table.definition.revision, table.now);
    table.fleet.found(Some(table.definition.clone()), &old, "another", table.now);
    assert_eq!(table.deleted(), [(old, false)]);
    let link = table.fleet.link(&table.definition.key, &good).expect("taken on");
    assert!(table.fleet.link_of(&link.token_hash()).is_some());
    table.ready(&link);
    assert!(matches!(table.call(), Ok(Place::Granted(granted)) if granted.link.pod == good));
    table.fleet.left(&table.definition.key, &good, false, table.now);
    assert_eq!(table.fleet.desks[&table.definition.key].slot(&good).expect("it ends").phase, Phase::Draining);
}

#[test]
fn a_namespace_has_only_so_many_pods() {
    let mut table = Table::new(json!({"code": "x", "minReplicas": 3}));
    table.fleet = Fleet::new(PodKey::new(b"key"), 2);
    table.fleet.defined(table.definition.clone(), table.now);
    assert_eq!(table.created().len(), 2);
    let other = json!({"metadata": {"namespace": "a", "name": "g", "uid": "v"}, "spec": {"code": "x", "runtime": "python",
        "concurrency": 1, "limits": {"queueLength": 1}}});
    table.definition =
        Arc::new(Definition::new(Arc::new(serde_json::from_value(other).expect("a function"))));
    let mut refused = table.waits();
    assert_eq!(refused.try_recv().expect("told").err().expect("refused").fault.reason, "TooManyPods");
}

#[test]
fn a_function_that_is_deleted_leaves_nobody_waiting() {
    let mut table = Table::new(json!({"code": "x"}));
    let mut call = table.waits();
    let links = table.created();
    table.fleet.undefined(&table.definition.key);
    assert_eq!(call.try_recv().expect("told").err().expect("refused").status, 404);
    assert_eq!(table.deleted(), [(links[0].pod.clone(), false)]);
}
