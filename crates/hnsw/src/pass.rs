/// A pass of the bulk engine that a benchmark can leave out, to measure its gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Under inner product: the extra coordinate that gives vectors equal norms.
    Augmentation,
    /// Under inner product: the longest elements as candidates of all.
    Longest,
    /// Int8 codes: without them exact values are compared.
    Codes,
    /// Codes of principal components: without them codes have all dimensions.
    Components,
    /// The removal of pivots that are nearest to very many elements.
    HubRemoval,
    /// The second look, at the candidates of neighbors.
    SecondLook,
    /// An element's nearest pivots as candidates.
    PivotLinks,
    /// The second choice, in which an element considers the elements that chose it.
    MutualChoice,
    /// Links to elements of low in-degree.
    InDegree,
    /// Links out of groups of near-identical elements.
    LinksOut,
    /// The guard's remedies for a graph whose searches get lost.
    Remedies,
    /// Links to elements that searches miss.
    MissedElements,
    /// Links to unreachable elements.
    Reach,
    /// The order of elements on pages: without it, the order of the rows.
    PageOrder,
}

impl Pass {
    /// Every pass, in the order in which they run.
    pub const ALL: [Self; 14] = [
        Self::Augmentation,
        Self::Longest,
        Self::Codes,
        Self::Components,
        Self::HubRemoval,
        Self::SecondLook,
        Self::PivotLinks,
        Self::MutualChoice,
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
            Self::SecondLook => "second look",
            Self::PivotLinks => "pivot links",
            Self::MutualChoice => "mutual choice",
            Self::InDegree => "in-degree",
            Self::LinksOut => "links out",
            Self::Remedies => "remedies",
            Self::MissedElements => "missed elements",
            Self::Reach => "reach",
            Self::PageOrder => "page order",
        }
    }

    /// Whether a build that leaves out `left_out` has this pass.
    pub(crate) fn runs(self, left_out: Option<Self>) -> bool {
        left_out != Some(self)
    }
}
