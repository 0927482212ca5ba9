//! The passes that a benchmark can leave out.

/// A pass of the bulk engine that a benchmark can leave out, to measure its gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Under inner product: the extra coordinate that gives vectors equal norms.
    Augmentation,
    /// Under inner product: the longest vectors as candidates of every element.
    Longest,
    /// Int8 codes of all values, computed once per build. Without them, each group of elements is quantised by itself.
    Codes,
    /// Codes of principal components. Without them, codes have all dimensions.
    Components,
    /// Removal of pivots that are among the nearest of very many elements.
    HubRemoval,
    /// Refinement: each element is compared with the candidates of its cell (`partition/refine.rs`).
    Refinement,
    /// Further partitions while candidates lack too many true neighbors (`partition/more.rs`).
    MorePartitions,
    /// An element's nearest pivots as candidates.
    PivotLinks,
    /// The reverse-edge pass: each element selects again, among its neighbors and the elements that chose it (`select/reverse_edges.rs`).
    ReverseEdges,
    /// More links to elements of low in-degree.
    InDegree,
    /// Links out of groups of near-identical elements.
    LinksOut,
    /// The guard's remedies for a graph whose searches get lost.
    Remedies,
    /// Links to elements that searches miss.
    MissedElements,
    /// Links to unreachable elements.
    Reach,
    /// Page order by links. Without it, elements are in the order of their heap TIDs.
    PageOrder,
}

impl Pass {
    /// Every pass, in the order of reports, which is about that in which they run.
    pub const ALL: [Self; 15] = [
        Self::Augmentation,
        Self::Longest,
        Self::Codes,
        Self::Components,
        Self::HubRemoval,
        Self::Refinement,
        Self::MorePartitions,
        Self::PivotLinks,
        Self::ReverseEdges,
        Self::InDegree,
        Self::LinksOut,
        Self::Remedies,
        Self::MissedElements,
        Self::Reach,
        Self::PageOrder,
    ];

    /// The name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Augmentation => "augmentation",
            Self::Longest => "longest",
            Self::Codes => "codes",
            Self::Components => "components",
            Self::HubRemoval => "hub removal",
            Self::Refinement => "refinement",
            Self::MorePartitions => "more partitions",
            Self::PivotLinks => "pivot links",
            Self::ReverseEdges => "reverse edges",
            Self::InDegree => "in-degree",
            Self::LinksOut => "links out",
            Self::Remedies => "remedies",
            Self::MissedElements => "missed elements",
            Self::Reach => "reach",
            Self::PageOrder => "page order",
        }
    }
}
