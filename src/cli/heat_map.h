/* heat_map.h - loads of experts as cells of a map on the terminal: squares of colour, or shades. */
#ifndef DSMOE_CLI_HEAT_MAP_H
#define DSMOE_CLI_HEAT_MAP_H

#include <stdbool.h>

/* Prints a cell of `width` columns for a load over the mean. */
void heat_map_cell(double relative_load, bool colour, int width);
/* Prints what the cells mean, and an empty line. */
void heat_map_legend(bool colour);

#endif
