// Vendor libraries that binaries name as needed but of whose functions they use none, or look each up by name and
// do without. They exist under the vendor's names and hold nothing.
