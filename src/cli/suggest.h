/* suggest.h - suggests what a user may have meant by a name that does not exist. */
#ifndef DSMOE_CLI_SUGGEST_H
#define DSMOE_CLI_SUGGEST_H

#include <stddef.h>

/* The name that is nearest to `word`: a few letters wrong, missing, extra or swapped, or only its
 * beginning. NULL if none is near. If several are equally near, the first of them. */
const char *suggest_name(const char *word, const char *const *names, int n_names);

/* The same as the end of a message, "; did you mean train?", or "" if none is near. */
enum { SUGGESTION = 96 };
const char *suggest_text(const char *word, const char *const *names, int n_names,
                         char out[SUGGESTION]);

/* "step, cosine or constant", as much of it as fits; returns `out`. */
const char *suggest_list(const char *const *names, int n_names, char *out, size_t size);

/* The place of `value` among the names that an option takes, or -1 after a message of wrong usage that
 * lists them. */
int suggest_choice(const char *command, const char *option, const char *value,
                   const char *const *names, int n_names);

/* Refuses a word that should be a subcommand; NULL: it is missing. Returns CLI_USAGE. */
int suggest_part(const char *command, const char *word, const char *const *parts, int n_parts);

#endif
