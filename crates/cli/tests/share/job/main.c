/* The program of the compile job. */
#include <stdio.h>

#define EACH_UNIT(unit) unit(1) unit(2) unit(3) unit(4) unit(5) unit(6) unit(7) unit(8)
#define DECLARE(number) int unit##number(int seed);
#define CALL(number) +unit##number(number)

EACH_UNIT(DECLARE)

int main(void)
{
	printf("%d\n", 0 EACH_UNIT(CALL));
	return 0;
}
