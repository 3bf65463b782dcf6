/* same_config.h - compares two configurations member by member. */
#ifndef DSMOE_TESTS_SAME_CONFIG_H
#define DSMOE_TESTS_SAME_CONFIG_H

#include "dsmoe.h"

void assert_same_config(const dsmoe_config *a, const dsmoe_config *b);

#endif
