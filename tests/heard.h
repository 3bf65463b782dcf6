/* heard.h - what a part of the command says on stderr, for a test to look at. */
#ifndef DSMOE_TESTS_HEARD_H
#define DSMOE_TESTS_HEARD_H

extern char heard[4096]; /* between the last listen_begin and listen_end */

/* From here on stdout goes nowhere and stderr to where listen_end finds it. */
void listen_begin(void);
void listen_end(void);

void assert_has(const char *text, const char *words);
void assert_lacks(const char *text, const char *words);

#endif
