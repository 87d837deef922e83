//! Status lines.

/// A status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) u16);

impl Status {
    pub(super) const OK: Status = Status(200);
    pub(super) const BAD_REQUEST: Status = Status(400);
    pub(super) const FORBIDDEN: Status = Status(403);
    pub(super) const NOT_FOUND: Status = Status(404);
    pub(super) const NOT_ALLOWED: Status = Status(405);
    pub(super) const TIMEOUT: Status = Status(408);
    pub(super) const TOO_LARGE: Status = Status(413);
    pub(super) const HEAD_TOO_LARGE: Status = Status(431);
    pub(super) const FAILED: Status = Status(500);
    pub(super) const NOT_IMPLEMENTED: Status = Status(501);
    pub(super) const BUSY: Status = Status(503);
    pub(super) const VERSION: Status = Status(505);

    pub(super) fn reason(self) -> &'static str {
        match self.0 {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "Internal Server Error",
        }
    }
}
