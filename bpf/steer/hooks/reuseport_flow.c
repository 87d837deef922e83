/* Socket Select for policies that look at no byte of the payload, which is not copied for them. */
#define HD_NO_PAYLOAD
#include "reuseport.c"
