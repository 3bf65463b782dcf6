/* heard.h - what a part of the command writes to stderr, for a test to look at. */
#ifndef DSMOE_TESTS_HEARD_H
#define DSMOE_TESTS_HEARD_H

extern char heard[4096]; /* what was written between the last listen_begin and listen_end */

/* After listen_begin stdout is discarded and stderr is collected, until listen_end. */
void listen_begin(void);
void listen_end(void);

void assert_has(const char *text, const char *words);
void assert_lacks(const char *text, const char *words);

#endif
