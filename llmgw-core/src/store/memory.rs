//! A store that forgets: for tests, and as the shortest statement of the contract.
