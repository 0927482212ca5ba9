//! The correct answer of a builder, which tests corrupt before it is sent.

use std::io;

use graph::{ElementValues, Graph, GraphParts, HeapTids, NO_NEIGHBOR, ValueType};
use pages::{IndexMeta, PAGE_SIZE, Page, PageBytes, PageWriter, Tuple};
use protocol::{BuilderMessage, Done, Hello, Layout, PROTOCOL_VERSION, StreamChecksum, encode_pages};

use crate::fake::{Peer, Row, accept};

/// Layout, pages and Done.
pub struct Answer {
    pub layout: Layout,
    /// Pages with their block numbers, in the order in which they are sent, one per frame.
    pub pages: Vec<(u32, PageBytes)>,
    pub done: Done,
    /// Bits to flip in the checksum of the pages.
    pub checksum_error: u32,
}

struct Values<'a>(&'a [Row]);

impl ElementValues for Values<'_> {
    fn value(&self, element: u32) -> &[u8] {
        &self.0[element as usize].value
    }
}

impl Answer {
    /// A graph of few rows, all at layer 0, each an element that is linked to all others.
    pub fn new(hello: &Hello, rows: &[Row]) -> Self {
        Self::with_levels(hello, rows, vec![0; rows.len()])
    }

    /// The same graph with given levels. The upper layers have no links.
    pub fn with_levels(hello: &Hello, rows: &[Row], levels: Vec<u8>) -> Self {
        let slots = 2 * usize::from(hello.m);
        let count = u32::try_from(rows.len()).unwrap();
        assert!(rows.len() <= slots + 1);
        let mut heap_tids = HeapTids::default();
        rows.iter().for_each(|row| heap_tids.push([row.tid]));
        let list = |element: u32| {
            let others = (0..count).filter(move |&other| other != element);
            others.chain(std::iter::repeat(NO_NEIGHBOR)).take(slots)
        };
        let graph = Graph::new(GraphParts {
            m: hello.m,
            layer0: (0..count).flat_map(list).collect(),
            upper: vec![NO_NEIGHBOR; levels.iter().map(|&level| usize::from(level) * usize::from(hello.m)).sum()],
            heap_tids,
            entry: (0..count).max_by_key(|&element| levels[element as usize]),
            levels,
        })
        .unwrap();
        let (values, order) = (Values(rows), (0..count).collect::<Vec<_>>());
        let meta = IndexMeta {
            value_type: ValueType::Vector,
            dims: hello.dims,
            m: hello.m,
            ef_construction: hello.ef_construction,
        };
        let layout = pages::Layout::new(&graph, &values, &order, &meta).unwrap();
        let writer = PageWriter::new(&graph, &values, &layout);
        let (blocks, rows) = (writer.blocks(), u64::from(count));
        let page = |block| {
            let mut page = [0; PAGE_SIZE];
            writer.write_page(block, &mut page);
            (block, page)
        };
        let done = Done { rows, elements: rows, self_recall_ppm: 1_000_000, build_ms: 1, blocks, ..Done::default() };
        Self {
            layout: Layout { blocks, elements: rows, rows },
            pages: (0..blocks).map(page).collect(),
            done,
            checksum_error: 0,
        }
    }

    pub fn send(&self, peer: &mut Peer) -> io::Result<()> {
        peer.say(&BuilderMessage::Layout(self.layout))?;
        let mut checksum = StreamChecksum::new();
        for (block, page) in &self.pages {
            let (head, body, crc) = encode_pages(*block, page.to_vec());
            checksum.add(crc);
            peer.send(&head)?;
            peer.send(&body)?;
        }
        peer.say(&BuilderMessage::Done(Done { checksum: checksum.value() ^ self.checksum_error, ..self.done }))
    }

    /// Overwrites bytes of a page.
    pub fn put(&mut self, block: usize, at: usize, bytes: &[u8]) {
        self.pages[block].1[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The position of the first element tuple: block, and offset in bytes.
    pub fn first_element(&self) -> (usize, usize) {
        self.find(|tuple| matches!(tuple, Tuple::Element(_)))
    }

    /// The position of the first neighbor tuple.
    pub fn first_neighbors(&self) -> (usize, usize) {
        self.find(|tuple| matches!(tuple, Tuple::Neighbor(_)))
    }

    fn find(&self, wanted: impl Fn(&Tuple<'_>) -> bool) -> (usize, usize) {
        let found = self.pages.iter().enumerate().skip(1).find_map(|(block, (number, page))| {
            let page = Page::parse(*number, page).unwrap();
            let item = page.items().map(Result::unwrap).find(|item| wanted(&Tuple::parse(item).unwrap()))?;
            Some((block, item.start))
        });
        found.expect("an index with rows has both")
    }
}

/// Answers a Hello and builds the index of the received rows correctly.
pub fn honest(peer: &mut Peer) -> io::Result<()> {
    let hello = peer.hello()?;
    build(peer, &hello)
}

/// The same, once the Hello has been read.
pub fn build(peer: &mut Peer, hello: &Hello) -> io::Result<()> {
    peer.say(&accept(PROTOCOL_VERSION))?;
    let rows = peer.rows()?;
    Answer::new(hello, &rows).send(peer)
}
