use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use graph::ValueType;
use hnsw::Links;
use pages::{Datum, FileSource, MetaPage, PAGE_SIZE, Page, PageSource, Tid, Tuple};

/// The parts of an hnsw index that a search needs, read from its file.
pub struct Index {
    entry: Option<(u32, u8)>,
    /// Pages of the file.
    pub pages: usize,
    /// The value of each element, in the type's encoding without pgvector's header.
    pub values: Vec<Vec<u8>>,
    /// The number of rows of each element.
    pub rows: Vec<usize>,
    /// The blocks of each element and of its neighbor tuple.
    pub places: Vec<(u32, u32)>,
    /// The links in use, by element and layer.
    lists: Vec<Vec<Vec<u32>>>,
}

impl Index {
    /// Reads the file of an index on values of this type.
    pub fn read(path: &Path, value_type: ValueType) -> Result<Self> {
        let mut source = FileSource::open(path)?;
        let mut raw = vec![[0u8; PAGE_SIZE]; source.blocks() as usize];
        for (block, page) in (0..).zip(&mut raw) {
            source.read(block, page)?;
        }
        let page = |block: usize| Page::parse(block as u32, &raw[block]);
        let meta = MetaPage::parse(&page(0)?)?;
        let (mut numbers, mut owners, mut elements) = (HashMap::new(), HashMap::new(), Vec::new());
        for block in 1..raw.len() {
            for item in page(block)?.items() {
                let Tuple::Element(element) = Tuple::parse(&item?)? else { continue };
                // VACUUM has cleared the value and removed all links to the element.
                if element.deleted() != 0 {
                    continue;
                }
                let datum = Datum::parse(value_type, meta.dims, element.tid(), element.data())?;
                let number = elements.len() as u32;
                numbers.insert(element.tid(), number);
                owners.insert(element.neighbor_tid(), number);
                let rows = element.heap_tids().iter().filter(|tid| tid.is_valid()).count();
                let places = (element.tid().block, element.neighbor_tid().block);
                elements.push((element.level(), datum.value.concat(), places, rows));
            }
        }
        let m = usize::from(meta.m);
        let mut lists = vec![Vec::new(); elements.len()];
        for block in 1..raw.len() {
            for item in page(block)?.items() {
                let Tuple::Neighbor(tuple) = Tuple::parse(&item?)? else { continue };
                let Some(&owner) = owners.get(&tuple.tid()) else { continue };
                let level = usize::from(elements[owner as usize].0);
                let slots: Vec<Tid> = tuple.slots().collect();
                lists[owner as usize] = (0..=level)
                    .map(|layer| {
                        let start = (level - layer) * m;
                        let slots = slots.iter().skip(start).take(if layer == 0 { 2 * m } else { m });
                        slots.filter_map(|tid| numbers.get(tid).copied()).collect()
                    })
                    .collect();
            }
        }
        let entry = numbers.get(&meta.entry).map(|&entry| (entry, elements[entry as usize].0));
        Ok(Self {
            entry,
            pages: raw.len(),
            places: elements.iter().map(|element| element.2).collect(),
            rows: elements.iter().map(|element| element.3).collect(),
            values: elements.into_iter().map(|element| element.1).collect(),
            lists,
        })
    }
}

impl Links for Index {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.entry
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.lists[element as usize].get(usize::from(layer)).into_iter().flatten().copied()
    }
}
