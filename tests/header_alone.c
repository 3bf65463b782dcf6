/* header_alone.c - the public header needs nothing before it, may come twice, is plain C11, and a
 * program that has names of our own inside links with the library. */
#include "dsmoe.h"
#include "dsmoe.h"

int status_fail(void);
int status_fail(void) { return 0; }

int main(void)
{
    dsmoe_layer_config config = dsmoe_layer_config_default();
    dsmoe_error error;
    return dsmoe_layer_config_check(&config, &error) == DSMOE_ERROR_CONFIG ? status_fail() : 1;
}
