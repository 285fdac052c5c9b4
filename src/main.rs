//! The provider's process.

fn main() -> std::process::ExitCode {
    capmox::cli::main()
}
