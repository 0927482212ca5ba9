use super::super::super::markdown::Table;
use super::super::section::Section;
use super::{Built, Form, Measured, Place};
use plot::{Plot, Series};

use harness::cores;
const SOURCE: &str = "After AWS Database Blog, \"Load vector embeddings up to 67x faster with pgvector and Amazon Aurora\" \
(2024): pgvector 0.5.1 (one process) against 0.7.0 (46 workers) on r7g.12xlarge with 48 vCPUs; 5 million rows x 1536 (OpenAI) and \
10 million x 768 (Cohere); m = 16, ef_construction = ef_search = 256.";

const DIFFERS: &str = "What differs: far fewer rows, synthetic vectors that look like embeddings, and the cores named \
above, which database and builder share, instead of 48. So parallel workers speed a build up at most by the number of cores, theirs by 23 \
to 30; a larger speed-up of the external build comes from its algorithm. In place of pgvector 0.5.1, the baseline is today's pgvector \
in one process, which is faster. One session loads the table, once; in both tables, 1.0 is a load and a build in one process. \
Of ef_search candidates by binary codes, the nearest by vectors are returned; the recall lost depends on the vectors.";

pub fn section(all: &[Measured]) -> Section {
    let mut section = Section::new("whole, halved and binary vectors, loaded and indexed", SOURCE);
    section.theirs("load and build, seconds", theirs());
    for measured in all {
        section.ours(&format!("{}, {} cores", measured.title, cores()), ours(measured));
        section.plot(&measured.title, plot(measured));
    }
    section.text(DIFFERS);
    section
}

/// The document's tables 2 to 6 in one.
fn theirs() -> Table {
    let mut table = Table::new(["set", "load + build s", "speed-up", "table and index GB", "recall"]);
    for row in [
        "openai5m, 0.5.1|29752.6|1.0||0.973",
        "openai5m, 0.7.0|1272.1|23.4|38|0.972",
        "openai5m, 0.7.0, halfvec|1284.1||19|0.969",
        "openai5m, 0.7.0, binary|445.4|66.8||0.822",
        "cohere10m, 0.5.1|49836.9|1.0||0.934",
        "cohere10m, 0.7.0|1685.6|29.6|38|0.951",
        "cohere10m, 0.7.0, halfvec|1696.3||19|0.950",
        "cohere10m, 0.7.0, binary|738.6|67.5||0.659",
    ] {
        table.row(row.split('|').map(str::to_owned));
    }
    table
}

fn ours(measured: &Measured) -> Table {
    let of = |wanted| measured.built.iter().find(|(which, _)| *which == wanted).map(|(_, built)| built.seconds);
    let one_process = of((Form::Vector, Place::Serial)).map(|seconds| measured.load + seconds);
    let mut table = Table::new([
        "index",
        "load s",
        "build s",
        "load + build s",
        "speed-up",
        "build, times faster than database in parallel",
        "index MB",
        "recall@10",
    ]);
    for &((form, place), Built { seconds, size, recall }) in &measured.built {
        let times = |base: Option<f64>, own: f64| base.map_or(String::new(), |base| format!("{:.1}", base / own));
        let parallel = of((form, Place::Parallel)).filter(|_| place == Place::External);
        table.row([
            format!("{}; {}", form.name(), place.name()),
            format!("{:.2}", measured.load),
            format!("{seconds:.2}"),
            format!("{:.2}", measured.load + seconds),
            times(one_process, measured.load + seconds),
            times(parallel, seconds),
            format!("{:.1}", size / 1e6),
            format!("{recall:.4}"),
        ]);
    }
    table
}

fn plot(measured: &Measured) -> Plot {
    let series = Place::ALL.map(|place| {
        let built = measured.built.iter().filter(|((_, at), _)| *at == place);
        let points =
            built.map(|((form, _), built)| (measured.load + built.seconds, built.recall, form.name().to_owned()));
        Series { name: place.name().to_owned(), points: points.collect(), ..Series::default() }
    });
    Plot::of_recall(format!("Load and build, {}", measured.title), "load and build, seconds", series.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_compared_with_one_process_and_with_all_workers() {
        let built = |seconds| Built { seconds, size: 2e6, recall: 0.99 };
        let measured = Measured {
            title: "few".to_owned(),
            load: 1.0,
            built: vec![
                ((Form::Vector, Place::Serial), built(19.0)),
                ((Form::Vector, Place::Parallel), built(9.0)),
                ((Form::Vector, Place::External), built(3.0)),
            ],
        };
        let text = ours(&measured).render();
        let words: Vec<&str> = text.lines().last().unwrap_or_default().split('|').map(str::trim).collect();
        assert_eq!(words[2..9], ["1.00", "3.00", "4.00", "5.0", "3.0", "2.0", "0.9900"]);
        assert_eq!(theirs().render().lines().count(), 10);
    }
}
