//! Values as CQL serializes them: checks, comparison, an order-preserving encoding for keys, and text.
