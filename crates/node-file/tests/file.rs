//! Small graphs as files, byte by byte.

use graph::{ElementValues, Graph, GraphParts, HeapTid, HeapTids, NO_NEIGHBOR as NO, ValueType};
use node_file::{Content, NodeFile, NodeFileError};

struct Values(Vec<[u8; 2]>);

impl ElementValues for Values {
    fn value(&self, element: u32) -> &[u8] {
        &self.0[element as usize]
    }
}

const CONTENT: Content = Content { value_type: ValueType::HalfVec, dims: 1, metric: b'e' };

fn values() -> Values {
    Values((0..4).map(|element| [element, 0x3c]).collect())
}

/// Element 2 alone on layer 2, 1 and 2 on layer 1, 0 to 3 on layer 0; m = 2.
fn graph(tids_of_last: u16) -> Graph {
    let mut heap_tids = HeapTids::with_capacity(4, 4);
    for offset in 1..=3 {
        heap_tids.push([HeapTid::new(0x0001_0002, offset)]);
    }
    heap_tids.push((0..tids_of_last).map(|at| HeapTid::new(9, 1 + at)));
    let layer0 = [[1, 2, NO, NO], [0, 2, 3, NO], [0, 1, 3, NO], [1, 2, NO, NO]].concat();
    let parts = GraphParts {
        m: 2,
        levels: vec![0, 1, 2, 0],
        layer0,
        upper: vec![2, NO, 1, NO, NO, NO],
        heap_tids,
        entry: Some(2),
    };
    Graph::new(parts).unwrap()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[test]
fn nodes_have_full_upper_lists_and_no_lone_layer() {
    let (graph, values) = (graph(1), values());
    let file = NodeFile::new(&graph, &values, vec![2, 0, 1, 3], CONTENT).unwrap();
    assert_eq!(file.nodes(), 4);
    let mut nodes = Vec::new();
    file.write(0..4, &mut nodes);
    assert_eq!(file.bytes(), 136 + nodes.len() as u64);
    // Level 0: label, level, 4 slots, value; each higher level: 2 slots.
    let (low, high) = (8 + 2 + 4 + 24 + 2, 4 + 12);
    assert_eq!(nodes.len(), 4 * low + 2 * high);

    // Element 2, the entry point, comes first. Layer 2 has no other element and is left out.
    let entry = &nodes[..low + high];
    assert_eq!(entry[..10], [1, 0, 2, 0, 3, 0, 0, 0, 1, 0]);
    assert_eq!(number(&entry[10..14]), 3);
    let places: Vec<_> = entry[14..38].chunks(6).map(number).collect();
    assert_eq!(places, [1, 2, 3, 0]);
    // Its one neighbor on layer 1 fills the list.
    assert_eq!(number(&entry[38..42]), 2);
    assert_eq!(entry[42..54].chunks(6).map(number).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(entry[54..], [2, 0x3c]);

    // All of element 0.
    let second = &nodes[low + high..2 * low + high];
    let mut expected = vec![1, 0, 2, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([0; 12]);
    expected.extend([0, 0x3c]);
    assert_eq!(second, expected);
}

#[test]
fn the_head_has_the_sizes_and_the_entry_point() {
    let (graph, values) = (graph(1), values());
    let head = NodeFile::new(&graph, &values, vec![0, 1, 2, 3], CONTENT).unwrap().head();
    assert_eq!(head[..25], *b"usearch\x02\0\x08\0\x0e\0e\x06\x08\x10\x04\0\0\0\0\0\0\0");
    let numbers: Vec<_> = head[80..].chunks(8).map(number).collect();
    assert_eq!(numbers, [4, 2, 4, 1, 2, 2, 4], "nodes, m, 2 m, top layer, entry point, bytes per value, nodes");
}

#[test]
fn an_empty_upper_list_is_filled() {
    let mut heap_tids = HeapTids::with_capacity(2, 2);
    heap_tids.push([HeapTid::new(0, 1)]);
    heap_tids.push([HeapTid::new(0, 2)]);
    let parts = GraphParts {
        m: 2,
        levels: vec![1, 1],
        layer0: vec![1, NO, NO, NO, 0, NO, NO, NO],
        upper: vec![NO; 4],
        heap_tids,
        entry: Some(0),
    };
    let (graph, values) = (Graph::new(parts).unwrap(), values());
    let file = NodeFile::new(&graph, &values, vec![0, 1], CONTENT).unwrap();
    let mut nodes = Vec::new();
    file.write(0..2, &mut nodes);
    let upper = |node: &[u8]| node[42..54].chunks(6).map(number).collect::<Vec<_>>();
    let (first, second) = nodes.split_at(nodes.len() / 2);
    assert_eq!((upper(first), upper(second)), (vec![1, 1], vec![0, 0]));
}

#[test]
fn what_a_client_cannot_take_is_an_error() {
    let (values, order) = (values(), vec![0, 1, 2, 3]);
    let new = |graph: &Graph, order| NodeFile::new(graph, &values, order, CONTENT).err();
    assert_eq!(new(&graph(2), order.clone()), Some(NodeFileError::Element(3)), "two rows in one node");
    assert_eq!(new(&graph(1), vec![0, 1, 1, 3]), Some(NodeFileError::Element(1)));
    assert_eq!(new(&graph(1), vec![0, 1, 2]), Some(NodeFileError::Element(3)));
    assert_eq!(new(&graph(1), vec![0, 1, 2, 4]), Some(NodeFileError::Element(4)));
    let empty = Graph::new(GraphParts { m: 16, ..GraphParts::default() }).unwrap();
    assert_eq!(new(&empty, vec![]), Some(NodeFileError::Empty));
}

/// Vectors of 2000 dimensions in which the magic of an error message occurs.
struct LikeErrors([u8; 8000]);

impl ElementValues for LikeErrors {
    fn value(&self, _: u32) -> &[u8] {
        &self.0
    }
}

#[test]
fn values_that_look_like_an_error_where_a_read_begins_are_refused() {
    let rows = 1400;
    let mut heap_tids = HeapTids::with_capacity(rows, rows);
    (0..rows).for_each(|row| heap_tids.push([HeapTid::new(row as u32, 1)]));
    let ring = |element: usize| (1..=4).map(move |step| ((element + step) % rows) as u32);
    let parts = GraphParts {
        m: 2,
        levels: vec![0; rows],
        layer0: (0..rows).flat_map(ring).collect(),
        upper: vec![],
        heap_tids,
        entry: Some(0),
    };
    let graph = Graph::new(parts).unwrap();
    let content = Content { value_type: ValueType::Vector, dims: 2000, metric: b'e' };
    let order: Vec<u32> = (0..rows as u32).collect();
    let magic = [0x37, 0x33, 0x33, 0x37];
    // 10 MiB hold 1304 nodes of 8038 bytes and 4208 bytes of the next, 4170 of them its value.
    let with_magic = |at: usize| {
        let mut value = [1; 8000];
        value[at..at + 4].copy_from_slice(&magic);
        NodeFile::new(&graph, &LikeErrors(value), order.clone(), content).map(|file| file.nodes())
    };
    let begin = (10 << 20) % 8038 - 38;
    assert_eq!(with_magic(begin), Err(NodeFileError::Ambiguous));
    assert_eq!(with_magic(begin + 1), Ok(1400));
}
