/* Classes: the executors are queues, one for each class of requests, and a free worker pulls from the first
 * non-empty one (late binding). Class 0 is for short requests, the last one for those of a type that takes long. */
#include <heddle.h>

HD_PARAM(type_offset, 2, 0, 127, "which byte of a request is its type");
HD_PARAM(scan, 3, 0, 255, "the type of the long requests");

static u32 schedule(struct hd_in *in)
{
	u8 type;

	if (hd_load(in, hd_param(type_offset), &type))
		return HD_PASS;
	return type == hd_param(scan) ? hd_executors() - 1 : 0;
}
