/// A source of chance that gives every run the same.
///
/// `SplitMix64`: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014. Written out here, because the topic of a seed must
/// not change with the version of a dependency.
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not zero. The bias of the remainder is
    /// below what any bound here could show.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a `usize`")
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    // The first numbers of the reference implementation for this seed.
    #[test]
    fn chance_is_what_the_paper_says() {
        let mut chance = Chance::new(1_234_567);
        let numbers = [(); 3].map(|()| chance.next());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
