/* heat_map.c - loads of experts as cells of a map on the terminal. */
#include "cli/heat_map.h"

#include <math.h>
#include <stdio.h>

/* How loads (over the mean) up to `bound` are shown: a shade, or a background of the 256-colour palette, from
 * blue through grey to red. */
typedef struct load_level {
    double bound;
    const char *shade;
    int colour;
} load_level;

static const load_level levels[] = {{0, " ", 233},    {0.125, "·", 17},    {0.25, "·", 24},
                                    {0.45, "░", 31},  {0.667, "░", 67},    {0.85, "▒", 109},
                                    {1.18, "▒", 248}, {1.5, "▒", 180},     {2.2, "▓", 215},
                                    {3, "▓", 208},    {INFINITY, "█", 160}};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static const load_level *find_level(double relative_load)
{
    int i = 0;
    while (relative_load > levels[i].bound) i++;
    return &levels[i];
}

static void print_cell(const load_level *level, bool colour, int width)
{
    bool never = level->bound == 0; /* a dark cell is not seen on a dark screen */
    if (colour) printf("\033[48;5;%d;38;5;242m", level->colour);
    for (int i = 0; i < width; i++) fputs(!colour ? level->shade : never ? "·" : " ", stdout);
    if (colour) fputs("\033[0m", stdout);
}

void heat_map_cell(double relative_load, bool colour, int width)
{
    print_cell(find_level(relative_load), colour, width);
}

void heat_map_legend(bool colour)
{
    if (colour) {
        fputs("  never ", stdout);
        for (int i = 0; i < N_LEVELS; i++) {
            if (i == 1) fputs("  1/8 and less ", stdout);
            print_cell(&levels[i], true, 2);
        }
        puts(" 3 and more\n");
        return;
    }
    puts("  (blank) never   · to 1/4   ░ to 2/3   ▒ to 3/2   ▓ to 3   █ more\n");
}
