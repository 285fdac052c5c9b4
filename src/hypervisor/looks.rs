//! Looks at the tasks in flight: all at once by the list, and one by one where the list cannot tell.
//!
//! `cluster/tasks` shows the tasks that run and the last ones that ended of each node, as the node
//! told the others last. A node that was restarted, or that is busy, may lack one; one that fell
//! silent is shown as it was before.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::ObjectKey;
use super::endpoint::{Endpoint, lock};
use super::tasks::{Exit, Listed, Looked};
use crate::pve::{self, TaskExit, TaskStatus, TaskSummary, Upid};

impl Endpoint {
    /// When the list of tasks is read next, if one is in flight.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let due = lock(&self.tasks).next_due()?;
        Some(lock(&self.lists).next(due))
    }

    /// Looks at the tasks if one is due. A look at a node that does not answer takes long, so nobody
    /// waits for it; the client bounds how many are under way.
    pub(super) fn look_at_tasks(self: &Arc<Self>) {
        let now = Instant::now();
        let due = lock(&self.tasks).take_due(now);
        if due.is_empty() {
            return;
        }
        lock(&self.lists).begins(now);
        let endpoint = Arc::clone(self);
        tokio::spawn(async move { endpoint.look(due).await });
    }

    async fn look(self: Arc<Self>, due: Vec<(ObjectKey, Upid)>) {
        let asked = Instant::now();
        let list = self.client().cluster_tasks().await;
        lock(&self.lists).ends();
        let unlisted = match list {
            Ok(list) => {
                let known = by_id(&list);
                let look_up = |upid: &Upid| match known.get(upid)? {
                    None => Some(Listed::Running),
                    // The last line may not be written yet.
                    Some(Exit::Unknown(_)) => None,
                    Some(exit) => Some(Listed::Ended(exit)),
                };
                let (ended, unlisted) = lock(&self.tasks).listed(&due, asked, look_up);
                for key in ended {
                    self.end(key);
                }
                unlisted
            }
            Err(error) if error.is_endpoint_lost() => {
                let why = error.to_string();
                for (key, upid) in due {
                    self.enter(key, &upid, Err(why.clone()));
                }
                Vec::new()
            }
            Err(error) => {
                tracing::debug!(%error, "tasks are not listed");
                due
            }
        };
        for (key, upid) in unlisted {
            let endpoint = Arc::clone(&self);
            tokio::spawn(async move {
                let result = match endpoint.client().task_status(&upid).await {
                    Ok(TaskStatus::Running) => Ok(None),
                    Ok(TaskStatus::Stopped { exit }) => Ok(Some(exit_of(exit))),
                    Err(error) if nobody_knows(&error) => {
                        Ok(Some(Exit::Unknown(error.message().to_owned())))
                    }
                    Err(error) => Err(error.to_string()),
                };
                endpoint.enter(key, &upid, result);
            });
        }
        self.work.notify_one();
    }

    fn enter(&self, key: ObjectKey, upid: &Upid, result: Result<Option<Exit>, String>) {
        let looked = lock(&self.tasks).looked(&key, upid, result, Instant::now());
        match looked {
            Looked::Nothing => {}
            Looked::Silence => self.wake(key),
            Looked::End => self.end(key),
        }
        self.work.notify_one();
    }

    /// A task has ended, and with it the turn of a clone.
    fn end(&self, key: ObjectKey) {
        self.leave_clones(&key);
        self.wake(key);
    }
}

/// How each listed task ended; none while it runs.
fn by_id(list: &[TaskSummary]) -> HashMap<&Upid, Option<Exit>> {
    let exit = |task: &TaskSummary| {
        let has_ended = task.endtime.is_some() || task.status.is_some();
        has_ended.then(|| exit_of(TaskExit::of(task.status.as_deref().unwrap_or_default())))
    };
    list.iter().map(|task| (&task.upid, exit(task))).collect()
}

/// Whether no later look can tell more: the task's log is lost, or its node is none any more.
fn nobody_knows(error: &pve::Error) -> bool {
    error.is_task_unknown()
        || error.cause() == Some(pve::Cause::NodeMissing)
        || *error.kind() == pve::ErrorKind::NotImplemented
}

fn exit_of(exit: TaskExit) -> Exit {
    match exit {
        TaskExit::Ok | TaskExit::Warnings(_) => Exit::Success,
        TaskExit::Unknown(text) => Exit::Unknown(text),
        TaskExit::Failed(text) => Exit::Failure(text),
    }
}
