//! admin_client
