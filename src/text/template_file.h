/* template_file.h - chat_template.jinja, where newer folders keep the template of conversations. */
#ifndef DSMOE_TEXT_TEMPLATE_FILE_H
#define DSMOE_TEXT_TEMPLATE_FILE_H

#include "text/tokenizer.h"

#define TEMPLATE_FILE_NAME "chat_template.jinja"

/* The text of a tokenizer_config.json whose chat_template is that of the file at `path`, in memory to free(). It takes
 * the place of one that the text has, as in public tools. NULL: the text is not a JSON object, which its reader will
 * report. */
dsmoe_status template_file_put(const char *path, const tokenizer_text *config, char **text,
                               size_t *length, dsmoe_error *error);

/* The same with a template that is at hand. */
dsmoe_status template_put(const tokenizer_text *config, const char *template, size_t size,
                          char **text, size_t *length, dsmoe_error *error);

#endif
