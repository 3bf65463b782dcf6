/* tokenizer_files.h - the two texts of a tokenizer, wherever they come from. A chat_template.jinja next to
 * tokenizer_config.json becomes part of the config's text. */
#ifndef DSMOE_TEXT_TOKENIZER_FILES_H
#define DSMOE_TEXT_TOKENIZER_FILES_H

#include "formats/whole_file.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

typedef struct tokenizer_files {
    tokenizer_text text;   /* tokenizer.json */
    tokenizer_text config; /* tokenizer_config.json; bytes are NULL if there is none */
    whole_file file, config_file;
    gguf_tokenizer_text made; /* from a GGUF file */
    char *with_template;      /* the text of config if its template was replaced; or NULL */
    char *names[2];
} tokenizer_files;

/* `path` is what dsmoe_tokenizer_open takes. After a failure there is nothing to close. */
dsmoe_status tokenizer_files_open(tokenizer_files *files, const char *path, dsmoe_error *error);
void tokenizer_files_close(tokenizer_files *files);

/* Puts the template of that chat form into the config; nothing else in it changes. */
dsmoe_status tokenizer_files_set_form(tokenizer_files *files, const dsmoe_chat_form *form,
                                      dsmoe_error *error);

/* Writes both texts as files of an existing folder. */
dsmoe_status tokenizer_files_write(const tokenizer_files *files, const char *folder,
                                   dsmoe_error *error);

#endif
