//! The messages in the files of `proto/vectors`.

use bytes::Bytes;
use lantern_index_protocol::{
    Accept, Advice, Ask, BuilderMessage, Check, Choice, ClientMessage, Done, EndOfIndex, EndOfTuples, ErrorReport,
    Findings, Hello, Layout, Metric, Pages, Phase, Ping, Pong, Progress, Redirect, Refuse, SqlState, Ticket, Tuples,
    ValueType, Wait, capability,
};

/// Messages of a client, with the name of their file.
pub fn client() -> Vec<(&'static str, ClientMessage)> {
    vec![
        ("hello", ClientMessage::Hello(hello())),
        ("hello_check", ClientMessage::Hello(hello_check())),
        ("hello_advise", ClientMessage::Hello(hello_advise())),
        ("tuples", ClientMessage::Tuples(tuples())),
        ("tuples_lengths", ClientMessage::Tuples(tuples_with_lengths())),
        ("end_of_tuples", ClientMessage::EndOfTuples(EndOfTuples { rows: 2, checksum: 0xa7ed_6f9a })),
        ("cancel", ClientMessage::Cancel),
        ("heartbeat", ClientMessage::Heartbeat),
        ("ping", ClientMessage::Ping(Ping { token: Some("one way".into()) })),
        ("ticket", ClientMessage::Ticket(Ticket { ticket: "one way".into() })),
        ("index_pages", ClientMessage::IndexPages(pages())),
        ("end_of_index", ClientMessage::EndOfIndex(EndOfIndex { blocks: 3, checksum: 0 })),
    ]
}

/// Messages of a builder, with the name of their file.
pub fn builder() -> Vec<(&'static str, BuilderMessage)> {
    let refuse = Refuse {
        retry_after_ms: 30_000,
        report: ErrorReport {
            sqlstate: SqlState::OUT_OF_MEMORY,
            message: "build does not fit into memory".into(),
            detail: "needs 9 GiB, 4 GiB are free".into(),
            hint: String::new(),
        },
    };
    let error = ErrorReport {
        sqlstate: SqlState::QUERY_CANCELED,
        message: "build cancelled".into(),
        detail: String::new(),
        hint: "look into the builder's log".into(),
    };
    let done = Done {
        rows: 2,
        elements: 2,
        relinked: 1,
        unreachable: 0,
        self_recall_ppm: 998_500,
        build_ms: 90_061,
        blocks: 3,
        checksum: 0x8d91_0c77,
        recall_ppm: Some(971_000),
    };
    let progress = Progress { phase: Phase::Graph as u8, done: 250_000, total: 1_000_000 };
    vec![
        ("accept", BuilderMessage::Accept(accept())),
        ("wait", BuilderMessage::Wait(Wait { position: 3, reason: "waiting for memory".into() })),
        ("refuse", BuilderMessage::Refuse(refuse)),
        ("progress", BuilderMessage::Progress(progress)),
        ("layout", BuilderMessage::Layout(Layout { blocks: 3, elements: 2, rows: 2 })),
        ("pages", BuilderMessage::Pages(pages())),
        ("done", BuilderMessage::Done(done)),
        ("error", BuilderMessage::Error(error)),
        ("heartbeat", BuilderMessage::Heartbeat),
        ("pong", BuilderMessage::Pong(pong())),
        ("redirect", BuilderMessage::Redirect(redirect())),
        ("accept_check", BuilderMessage::Accept(Accept { capabilities: capability::CHECK, ..accept() })),
        ("findings", BuilderMessage::Findings(findings())),
        ("accept_advise", BuilderMessage::Accept(Accept { capabilities: capability::ADVISE, ..accept() })),
        ("advice", BuilderMessage::Advice(advice())),
    ]
}

fn hello_check() -> Hello {
    let check = Some(Check { blocks: 3, sample: 100, ef_search: 40 });
    Hello { capabilities: capability::CHECK, check, ..hello() }
}

fn hello_advise() -> Hello {
    let ask = Some(Ask { queries: 500, table_rows: 25_000_000, k: 10, target_ppm: 950_000 });
    Hello { capabilities: capability::ADVISE, ask, ..hello() }
}

fn advice() -> Advice {
    let choice = Choice {
        value_type: ValueType::Bit,
        m: 16,
        ef_construction: 64,
        ef_search: 120,
        reranked: 120,
        recall_ppm: 951_000,
        visited: 1500,
        index_bytes: 1 << 30,
        cached_bytes: 1 << 29,
        build_ms: 90_061,
        memory_bytes: 3 << 30,
    };
    Advice { rows: 25_000, queries: 500, choices: vec![choice] }
}

fn findings() -> Findings {
    Findings {
        m: 16,
        live: 900,
        deleted: 100,
        rows: 950,
        duplicates: 50,
        not_full: 3,
        reachable: 899,
        sampled: 100,
        recall_ppm: 971_000,
        errors: 1,
        first_errors: vec!["block 2: lower is 3".into()],
    }
}

fn hello() -> Hello {
    Hello {
        protocol_min: 2,
        protocol_max: 2,
        capabilities: 0,
        value_type: ValueType::Vector,
        metric: Metric::Cosine,
        dims: 384,
        m: 16,
        ef_construction: 64,
        estimated_rows: 1_000_000,
        page_size: 8192,
        client_version: "lantern_index 0.1.0".into(),
        server_version: "PostgreSQL 15.20".into(),
        label: "möbel_idx".into(),
        token: String::new(),
        build_id: "4f9a7c01d2e3b586".into(),
        check: None,
        ask: None,
    }
}

fn tuples() -> Tuples {
    let values: Vec<u8> = [1.0f32, 0.5, -2.0, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
    Tuples {
        count: 2,
        tids: Bytes::from_static(&[0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 5, 0]),
        lengths: Bytes::new(),
        values: values.into(),
    }
}

fn tuples_with_lengths() -> Tuples {
    let words = [1, 7, 1.0f32.to_bits(), 2, 0, 999, 0.25f32.to_bits(), (-4.0f32).to_bits()];
    let values: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    Tuples {
        count: 2,
        tids: Bytes::from_static(&[0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 2, 0]),
        lengths: Bytes::from_static(&[12, 0, 0, 0, 20, 0, 0, 0]),
        values: values.into(),
    }
}

fn accept() -> Accept {
    Accept {
        protocol: 2,
        capabilities: 0,
        session: 42,
        memory_reserved: 3 << 30,
        threads: 8,
        builder_version: "lantern-index 0.1.0".into(),
        remark: "values are kept in a file".into(),
    }
}

fn pong() -> Pong {
    Pong { protocol: 2, threads: 8, memory_free: 5 << 30, builder_version: "lantern-index 0.1.0".into() }
}

fn redirect() -> Redirect {
    Redirect { port: 9001, host: "10.1.2.3".into(), server_name: "builders.example".into(), ticket: "one way".into() }
}

fn pages() -> Pages {
    let mut bytes = vec![0x11; 8192];
    bytes.resize(2 * 8192 - 1, 0x22);
    bytes.push(0x33);
    Pages { first_block: 1, pages: bytes.into() }
}
