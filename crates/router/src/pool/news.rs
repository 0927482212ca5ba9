use protocol::Wait;
use service::held_back;
use service::report::BuilderReport;

use super::actor::Actor;
use crate::spawner::Outlook;

impl Actor {
    /// Publishes the pool's state: the reports for waiting clients, and those on the builders.
    pub(super) fn tell(&self) {
        let busy = self.scheduler.is_full();
        let failure = self.scheduler.last_failure().map_or_else(String::new, |error| match error.outlook {
            Outlook::Full => error.text.clone(),
            _ => format!("no builder could be started: {error}; trying again"),
        });
        let states = self.scheduler.builders();
        let starting = states.iter().filter(|(_, state)| *state == "starting");
        let mut news = starting.filter_map(|(id, _)| Some(self.builders.get(id)?.news.borrow().clone()));
        let news = news.rfind(|news| !news.is_empty()).unwrap_or_default();
        let reason = |request| match (busy, news.is_empty(), failure.is_empty() || !self.scheduler.is_failing(request))
        {
            (true, ..) => format!("all {} builders are busy", states.len()),
            (false, false, _) => news.clone(),
            (false, true, false) => failure.clone(),
            (false, true, true) => "a builder is starting".to_owned(),
        };
        for (index, (request, at_limit)) in self.scheduler.waiting().into_iter().enumerate() {
            let Some(client) = self.clients.get(&request) else { continue };
            let position = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let reason = at_limit.map_or_else(|| reason(request), |client| held_back(&client));
            let now = Wait { position, reason };
            client.waiting.send_if_modified(|last| {
                *last != now && {
                    *last = now.clone();
                    true
                }
            });
        }
        let builders = states
            .into_iter()
            .filter_map(|(id, state)| {
                let known = self.builders.get(&id)?;
                let name = known.builder.as_ref().map_or_else(|| format!("number {id}"), |it| it.facts().name.clone());
                let builds = u32::from(matches!(state, "building" | "finishing"));
                Some(BuilderReport { name, state: state.to_owned(), builds })
            })
            .collect();
        self.publish.send_replace(builders);
    }
}
