//! What the kernel knows of an interface: its addresses, routes and neighbours.
