use graph::{ElementValues, Graph, ValueType};

use crate::NodeFileError;
use crate::arrange::arrange;
use crate::head::{HEAD_BYTES, head};
use crate::window::Window;

/// The most nodes for which a client can allocate memory: 6 bytes each, of at most 1 GiB that PostgreSQL allocates at a time.
pub(crate) const MAX_NODES: u64 = 0x3fff_ffff / SLOT_BYTES as u64;

const LABEL_BYTES: usize = 8;
const SLOT_BYTES: usize = 6;
/// A server's error message begins with these bytes.
const ERROR_MAGIC: [u8; 4] = 0x3733_3337_u32.to_le_bytes();

/// The description of the values in the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// The type of the values.
    pub value_type: ValueType,
    /// Their dimensions.
    pub dims: u32,
    /// usearch's letter of the metric: `c`osine, `e`uclidean, `b`its.
    pub metric: u8,
}

/// A graph as a file of nodes, which meets three conditions of the clients:
///
/// * **Upper lists are full.** The client packs the lists of a node without gaps, but pgvector expects each at a fixed place:
///   an upper list that is not full would shift those below. So its neighbors are repeated, which searches do not notice and
///   inserts replace first. A top layer with a single element, which has no neighbor to repeat, is left out.
/// * **One heap TID per node**: the client reads no more.
/// * **No node is cut** by the client's window, and none looks like an error message to it.
pub struct NodeFile<'a> {
    graph: &'a Graph,
    values: &'a dyn ElementValues,
    content: Content,
    /// Elements in the order of the file.
    order: Vec<u32>,
    /// The place of each element in `order`.
    places: Vec<u32>,
    /// For each layer above 0 that is kept, an element other than the entry point.
    others: Vec<u32>,
    entry: u32,
    bytes: u64,
}

impl<'a> NodeFile<'a> {
    /// The file of a graph whose elements have one heap TID each. `order` has every element once.
    ///
    /// # Errors
    /// See [`NodeFileError`].
    pub fn new(
        graph: &'a Graph,
        values: &'a dyn ElementValues,
        mut order: Vec<u32>,
        content: Content,
    ) -> Result<Self, NodeFileError> {
        let entry = graph.entry().ok_or(NodeFileError::Empty)?;
        if graph.len() as u64 > MAX_NODES {
            return Err(NodeFileError::TooMany(graph.len() as u64));
        }
        if let Some(element) = graph.elements().find(|&element| graph.heap_tids().of(element).len() != 1) {
            return Err(NodeFileError::Element(element));
        }
        places(graph, &order)?;
        let mut others = Vec::new();
        for layer in 1..=graph.level(entry) {
            match graph.elements().find(|&element| element != entry && graph.level(element) >= layer) {
                Some(other) => others.push(other),
                None => break,
            }
        }
        let value_len = values.value(entry).len();
        let top = others.len() as u8;
        let size = |element: u32| node_len(graph.m(), graph.level(element).min(top), value_len);
        arrange(&mut order, size)?;
        let bytes = HEAD_BYTES as u64 + order.iter().map(|&element| size(element)).sum::<u64>();
        let places = places(graph, &order)?;
        let file = Self { graph, values, content, order, places, others, entry, bytes };
        file.check_window_starts()?;
        Ok(file)
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.order.len() as u32
    }

    /// The bytes of the whole file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The head of the file, before the nodes.
    #[must_use]
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let value_len = self.values.value(self.entry).len() as u64;
        let entry = self.places[self.entry as usize].into();
        head(&self.content, self.graph.m(), self.nodes().into(), value_len, self.top(), entry)
    }

    /// Appends nodes, numbered in the order of the file.
    ///
    /// # Panics
    /// If there are no such nodes.
    pub fn write(&self, nodes: std::ops::Range<u32>, out: &mut Vec<u8>) {
        for &element in &self.order[nodes.start as usize..nodes.end as usize] {
            self.write_node(element, out);
        }
    }

    fn write_node(&self, element: u32, out: &mut Vec<u8>) {
        let level = self.level(element);
        let mut label = [0; LABEL_BYTES];
        label[..6].copy_from_slice(&self.graph.heap_tids().of(element)[0].0);
        out.extend_from_slice(&label);
        out.extend_from_slice(&u16::from(level).to_le_bytes());
        let m = usize::from(self.graph.m());
        let neighbors = self.graph.neighbors(element, 0);
        self.write_list(neighbors.iter().copied(), neighbors.len(), 2 * m, out);
        for layer in 1..=level {
            let neighbors = self.graph.neighbors(element, layer);
            let alone = [if element == self.entry { self.others[usize::from(layer) - 1] } else { self.entry }];
            let known = if neighbors.is_empty() { &alone } else { neighbors };
            self.write_list(known.iter().copied().cycle().take(m), m, m, out);
        }
        out.extend_from_slice(self.values.value(element));
    }

    fn write_list(&self, neighbors: impl Iterator<Item = u32>, count: usize, slots: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&(count as u32).to_le_bytes());
        for neighbor in neighbors {
            let place = u64::from(self.places[neighbor as usize]).to_le_bytes();
            out.extend_from_slice(&place[..SLOT_BYTES]);
        }
        out.resize(out.len() + (slots - count) * SLOT_BYTES, 0);
    }

    /// The highest layer of the file.
    fn top(&self) -> u8 {
        self.others.len() as u8
    }

    fn level(&self, element: u32) -> u8 {
        self.graph.level(element).min(self.top())
    }

    fn node_len(&self, element: u32) -> u64 {
        node_len(self.graph.m(), self.level(element), self.values.value(self.entry).len())
    }

    /// Checks that none of the client's reads begins with the mark of an error message.
    fn check_window_starts(&self) -> Result<(), NodeFileError> {
        let mut window = Window::new(self.bytes - HEAD_BYTES as u64);
        let mut begins = Vec::new();
        for &element in &self.order {
            begins.extend(window.refill());
            window.advance(self.node_len(element));
        }
        let mut begins = begins.into_iter().peekable();
        let mut end = 0;
        for (node, &element) in (0..).zip(&self.order) {
            let start = end;
            end += self.node_len(element);
            while let Some(begin) = begins.next_if(|&begin| begin < end) {
                let mut bytes = Vec::new();
                // The four bytes may extend into the next node.
                self.write(node..self.nodes().min(node + 2), &mut bytes);
                if bytes[(begin - start) as usize..].starts_with(&ERROR_MAGIC) {
                    return Err(NodeFileError::Ambiguous);
                }
            }
        }
        Ok(())
    }
}

fn node_len(m: u16, level: u8, value_len: usize) -> u64 {
    let m = usize::from(m);
    let lists = 4 + 2 * m * SLOT_BYTES + usize::from(level) * (4 + m * SLOT_BYTES);
    (LABEL_BYTES + 2 + lists + value_len) as u64
}

fn places(graph: &Graph, order: &[u32]) -> Result<Vec<u32>, NodeFileError> {
    let mut places = vec![u32::MAX; graph.len()];
    for (place, &element) in (0..).zip(order) {
        match places.get_mut(element as usize) {
            Some(free) if *free == u32::MAX => *free = place,
            _ => return Err(NodeFileError::Element(element)),
        }
    }
    match (0..).zip(&places).find(|&(_, &place)| place == u32::MAX) {
        Some((element, _)) => Err(NodeFileError::Element(element)),
        None => Ok(places),
    }
}
