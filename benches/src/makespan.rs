//! How long would recorded steps take with any number of threads?

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hnsw::Step;

/// The computed time of a build with a number of threads.
#[derive(Debug, Default, PartialEq)]
pub struct Makespan {
    /// The time until the last step ends.
    pub seconds: f64,
    /// For each section, the seconds lost by idle threads while only its tasks, or the work before them, were running. The sum of these
    /// losses and of the work divided by the number of threads is `seconds`.
    pub idle: BTreeMap<&'static str, f64>,
}

/// Consecutive steps, run by one thread at a time.
struct Job {
    /// The steps, with their positions in the order in which one thread ran all steps.
    steps: Vec<(usize, Move)>,
    next: usize,
    parent: Option<usize>,
    /// Unfinished tasks of the current section.
    open: usize,
}

enum Move {
    Alone(&'static str, f64),
    Section(Vec<usize>),
}

impl Makespan {
    /// Simulates threads that take ready steps in the recorded order.
    pub fn of(steps: &[Step], threads: usize) -> Self {
        let mut simulation = Simulation::default();
        simulation.plan(steps, None, &mut 0);
        simulation.run(threads)
    }
}

#[derive(Default)]
struct Simulation {
    jobs: Vec<Job>,
    /// Ready steps, as positions and jobs.
    ready: BinaryHeap<Reverse<(usize, usize)>>,
    /// Running steps, as times of their ends and jobs. Times are integers (nanoseconds), so that they can be ordered.
    running: BinaryHeap<Reverse<(u64, usize)>>,
    /// The number of running steps by section.
    names: BTreeMap<&'static str, usize>,
}

impl Simulation {
    /// Makes a job of the steps, and a job for each task in them.
    fn plan(&mut self, steps: &[Step], parent: Option<usize>, position: &mut usize) -> usize {
        let job = self.jobs.len();
        self.jobs.push(Job { steps: Vec::new(), next: 0, parent, open: 0 });
        for step in steps {
            let at = *position;
            *position += 1;
            let planned = match step {
                Step::Alone(name, seconds) => Move::Alone(name, *seconds),
                Step::Section(tasks) => {
                    Move::Section(tasks.iter().map(|task| self.plan(task, Some(job), position)).collect())
                }
            };
            self.jobs[job].steps.push((at, planned));
        }
        job
    }

    fn run(mut self, threads: usize) -> Makespan {
        let mut made = Makespan::default();
        let mut now = 0;
        self.advance(0);
        loop {
            while self.running.len() < threads
                && let Some(Reverse((_, job))) = self.ready.pop()
            {
                self.start(job, now);
            }
            let Some(&Reverse((end, _))) = self.running.peek() else { break };
            let busy = self.running.len();
            let lost = 1e-9 * (end - now) as f64 * (threads - busy) as f64 / threads as f64;
            for (name, &count) in self.names.iter().filter(|(_, count)| **count > 0) {
                *made.idle.entry(name).or_default() += lost * count as f64 / busy as f64;
            }
            now = end;
            while let Some(&Reverse((end, job))) = self.running.peek()
                && end == now
            {
                self.running.pop();
                self.end(job);
            }
        }
        made.seconds = 1e-9 * now as f64;
        made
    }

    /// Continues a job after its last step has ended: its next step, or the tasks of its next section, become ready.
    fn advance(&mut self, job: usize) {
        let Some((position, step)) = self.jobs[job].steps.get(self.jobs[job].next) else {
            if let Some(parent) = self.jobs[job].parent {
                self.jobs[parent].open -= 1;
                if self.jobs[parent].open == 0 {
                    self.jobs[parent].next += 1;
                    self.advance(parent);
                }
            }
            return;
        };
        match step {
            Move::Alone(..) => self.ready.push(Reverse((*position, job))),
            Move::Section(tasks) if tasks.is_empty() => {
                self.jobs[job].next += 1;
                self.advance(job);
            }
            Move::Section(tasks) => {
                let tasks = tasks.clone();
                self.jobs[job].open = tasks.len();
                tasks.into_iter().for_each(|task| self.advance(task));
            }
        }
    }

    fn start(&mut self, job: usize, now: u64) {
        let at = &self.jobs[job];
        if let (_, Move::Alone(name, seconds)) = at.steps[at.next] {
            *self.names.entry(name).or_default() += 1;
            self.running.push(Reverse((now + (1e9 * seconds) as u64, job)));
        }
    }

    fn end(&mut self, job: usize) {
        let at = &mut self.jobs[job];
        if let (_, Move::Alone(name, _)) = at.steps[at.next] {
            self.names.entry(name).and_modify(|count| *count -= 1);
        }
        at.next += 1;
        self.advance(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(seconds: &[f64]) -> Step {
        Step::Section(seconds.iter().map(|&seconds| vec![Step::Alone("tasks", seconds)]).collect())
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn steps_alone_leave_the_other_threads_idle() {
        let steps =
            [Step::Alone("a", 2.0), tasks(&[1.0, 1.0, 3.0, 1.0]), Step::Section(Vec::new()), Step::Alone("b", 1.0)];
        assert!(near(Makespan::of(&steps, 1).seconds, 9.0));
        let two = Makespan::of(&steps, 2);
        // The third task begins after one second; the fourth runs beside it.
        assert!(near(two.seconds, 2.0 + 4.0 + 1.0), "{two:?}");
        let [a, b, tasks] = ["a", "b", "tasks"].map(|name| two.idle[name]);
        assert!(near(a, 1.0) && near(b, 0.5) && near(tasks, 1.0), "{two:?}");
        let many = Makespan::of(&steps, 100);
        assert!(near(many.seconds, 6.0));
        assert!(near(many.seconds, many.idle.values().sum::<f64>() + 9.0 / 100.0));
    }

    #[test]
    fn tasks_of_tasks_go_to_free_threads() {
        let inner = vec![Step::Alone("outer", 1.0), tasks(&[2.0, 2.0]), Step::Alone("outer", 1.0)];
        let steps = [Step::Section(vec![inner, vec![Step::Alone("outer", 1.0)]])];
        let seconds = [1, 2, 3].map(|threads| Makespan::of(&steps, threads).seconds);
        assert!(near(seconds[0], 7.0) && near(seconds[1], 4.0) && near(seconds[2], 4.0), "{seconds:?}");
    }
}
