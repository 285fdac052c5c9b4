//! What the provider computes most often, counted in instructions by `make bench-hot`: see
//! `benches/hot_paths.rs`. Unlike times, these counts are the same on a busy machine.
