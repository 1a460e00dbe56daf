"""HTTP/1.1 and HTTP/2 as bytes in and bytes out: no sockets, no loops, no clocks."""
