/* header_alone.c - the public header needs no other header before it, can be included twice and is plain
 * C11. A program whose names are also used inside the library links with it. */
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
