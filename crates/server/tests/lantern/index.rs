use std::collections::HashSet;

use protocol::v1::Init;

use crate::client::Failure;

const WINDOW: usize = 10 << 20;
const NODE_MOST: usize = 8192;

/// The client's read buffer, a window that moves over the file.
pub struct Window {
    bytes: Vec<u8>,
    used: usize,
    taken: u64,
    file_bytes: u64,
    init: Init,
}

/// The client's result: pgvector's tuples, before node numbers are replaced by TIDs.
#[derive(Debug)]
pub struct Index {
    pub m: usize,
    pub elements: Vec<Element>,
    pub entry: usize,
}

#[derive(Debug)]
pub struct Element {
    pub tid: [u8; 6],
    pub level: usize,
    /// `(level + 2) * m` slots; the lists of all layers one after the other, from the top down.
    pub slots: Vec<Option<u32>>,
    pub value: Vec<u8>,
}

impl Window {
    pub fn new(file_bytes: u64, init: Init) -> Self {
        Self { bytes: vec![0xee; WINDOW], used: 0, taken: 136, file_bytes, init }
    }

    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> Result<usize, Failure>) -> Result<(), Failure> {
        self.taken += read(&mut self.bytes)? as u64;
        Ok(())
    }

    pub fn parse(
        mut self,
        nodes: u64,
        head: &[u8],
        mut read: impl FnMut(&mut [u8]) -> Result<usize, Failure>,
    ) -> Result<Index, Failure> {
        let m = self.init.m as usize;
        let entry = number(&head[112..118]) as usize;
        let mut index = Index { m, elements: Vec::new(), entry };
        let mut file_end = 136;
        for _ in 0..nodes {
            let left = WINDOW - self.used;
            if left < NODE_MOST && self.taken < self.file_bytes {
                self.bytes.copy_within(self.used.., 0);
                self.taken += read(&mut self.bytes[left..])? as u64;
                self.used = 0;
            }
            let node = &self.bytes[self.used..];
            let level = usize::from(u16::from_le_bytes([node[8], node[9]]));
            let len = self.node_len(level);
            assert!(len <= node.len(), "the client would read beyond its buffer");
            index.elements.push(element(&node[..len], level, m));
            self.used += len;
            file_end += len as u64;
        }
        if self.taken < self.file_bytes || file_end > self.taken {
            return Err(Failure::Fooled("short file"));
        }
        assert_eq!(file_end, self.file_bytes, "count and size do not fit together");
        Ok(index)
    }

    fn node_len(&self, level: usize) -> usize {
        let Init { m, dims, element_bits, .. } = self.init;
        let value = (dims as usize * element_bits as usize).div_ceil(8);
        10 + 4 + 12 * m as usize + level * (4 + 6 * m as usize) + value
    }
}

fn element(node: &[u8], level: usize, m: usize) -> Element {
    let list = |layer: usize| if layer == 0 { 10 } else { 14 + 12 * m + (layer - 1) * (4 + 6 * m) };
    let mut slots = Vec::new();
    for layer in (0..=level).rev() {
        let (at, room) = (list(layer), if layer == 0 { 2 * m } else { m });
        let count = number(&node[at..at + 4]) as usize;
        assert!(count <= room, "layer {layer}: {count} neighbors");
        assert!(layer == 0 || count == m, "a list of {count} above layer 0 shifts those below");
        let list = &node[at + 4..at + 4 + 6 * room];
        slots.extend(list.chunks(6).take(count).map(|slot| Some(number(slot) as u32)));
        assert!(list[6 * count..].iter().all(|&byte| byte == 0), "unused slots are 0");
    }
    slots.resize((level + 2) * m, None);
    assert_eq!(node[6..8], [0, 0], "the rest of the label");
    let value_at = 14 + 12 * m + level * (4 + 6 * m);
    Element { tid: node[..6].try_into().unwrap(), level, slots, value: node[value_at..].to_vec() }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl Index {
    /// Checks what the client's backend assumes without checking, and that scans can see the graph.
    pub fn check(&self) {
        let count = self.elements.len();
        let top = self.elements.iter().map(|element| element.level).max().unwrap();
        assert_eq!(self.elements[self.entry].level, top, "the entry point is on the highest layer");
        let tids: HashSet<_> = self.elements.iter().map(|element| element.tid).collect();
        assert_eq!(tids.len(), count, "each row once");
        for (at, element) in self.elements.iter().enumerate() {
            for layer in 0..=element.level {
                let neighbors: Vec<_> = self.neighbors(at, layer).collect();
                assert!(
                    neighbors.iter().all(|&neighbor| neighbor < count),
                    "a slot beyond the nodes crashes the backend"
                );
                assert!(neighbors.iter().all(|&neighbor| neighbor != at), "link to itself");
                assert!(neighbors.iter().all(|&neighbor| self.elements[neighbor].level >= layer));
                if layer == 0 {
                    assert_eq!(neighbors.len(), (2 * self.m).min(count - 1), "VACUUM rebuilds short lists");
                    assert_eq!(neighbors.iter().collect::<HashSet<_>>().len(), neighbors.len());
                }
            }
        }
    }

    /// The neighbors where pgvector's scan looks for them.
    fn neighbors(&self, element: usize, layer: usize) -> impl Iterator<Item = usize> {
        let Element { level, slots, .. } = &self.elements[element];
        let start = (level - layer) * self.m;
        let end = start + if layer == 0 { 2 * self.m } else { self.m };
        slots[start..end].iter().map_while(|slot| *slot).map(|slot| slot as usize)
    }

    /// A scan as pgvector does it: returns at most `ef` elements, nearest first.
    pub fn search(&self, distance: impl Fn(&[u8]) -> f64, ef: usize) -> Vec<&Element> {
        let mut nearest = vec![self.entry];
        for layer in (0..=self.elements[self.entry].level).rev() {
            nearest = self.search_layer(&nearest, layer, if layer == 0 { ef } else { 1 }, &distance);
        }
        nearest.into_iter().map(|at| &self.elements[at]).collect()
    }

    fn search_layer(&self, from: &[usize], layer: usize, ef: usize, distance: impl Fn(&[u8]) -> f64) -> Vec<usize> {
        let near = |at: usize| (distance(&self.elements[at].value), at);
        let mut visited: HashSet<usize> = from.iter().copied().collect();
        let mut found: Vec<_> = from.iter().map(|&at| near(at)).collect();
        let mut candidates = found.clone();
        let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        loop {
            candidates.sort_unstable_by(|a, b| order(b, a));
            let Some(candidate) = candidates.pop() else { break };
            if found.len() >= ef && candidate.0 > found[found.len() - 1].0 {
                break;
            }
            for neighbor in self.neighbors(candidate.1, layer) {
                if !visited.insert(neighbor) {
                    continue;
                }
                let next = near(neighbor);
                if found.len() < ef || next.0 < found[found.len() - 1].0 {
                    candidates.push(next);
                    let place = found.partition_point(|other| order(other, &next).is_lt());
                    found.insert(place, next);
                    found.truncate(ef);
                }
            }
        }
        found.into_iter().map(|(_, at)| at).collect()
    }
}
