/* SITA, size interval task assignment: separate executors for requests of a type that takes long, and the others in
 * turn for the rest. */
#include <heddle.h>

HD_PARAM(type_offset, 2, 0, 127, "which byte of a request is its type");
HD_PARAM(scan, 3, 0, 255, "the type of the long requests");
HD_PARAM(reserved, 1, 1, 1023, "how many executors are for long requests");

static u32 next_scan, next_other;

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors(), reserved = hd_param(reserved);
	u8 type;

	if (hd_load(in, hd_param(type_offset), &type))
		return HD_PASS;
	if (n <= reserved)
		return next_other++ % n;
	if (type == hd_param(scan))
		return next_scan++ % reserved;
	return reserved + next_other++ % (n - reserved);
}
