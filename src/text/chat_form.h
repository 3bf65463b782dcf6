/* chat_form.h - the forms in which models read conversations: which texts and special tokens stand around what is said,
 * and what ends an answer.
 *
 * A form is a row of a table. Commands take the one whose name they are given, or the one that the model's own
 * chat_template is recognised as (chat_template.c); a template itself is never run.
 *
 * Two ways lead from a conversation to ids, and both begin with chat_form_pieces:
 *
 * - A prompt (dsmoe_chat_encode): all that lies between two special tokens is encoded as one text, as the public
 *   templates do it, since tokens may reach across the border of frame and content.
 * - Training: chat_pieces_encode with `answers`. An answer is encoded apart from the frame around it, as a model writes
 *   it after the frame: in the form "deepseek" the frame ends with "Assistant:", and the answer's tokens are " Hello" and
 *   EOS. Ids with answers[i] are what an assistant has to write; the others are read only. Pieces tell the message they
 *   belong to, so a caller that wants to leave the answer of a message out of the loss sets `answer` of its pieces to
 *   false before it encodes them. */
#ifndef DSMOE_TEXT_CHAT_FORM_H
#define DSMOE_TEXT_CHAT_FORM_H

#include "text/buffer.h"
#include "text/tokenizer.h"

enum { CHAT_PARTS = 4, CHAT_WRITES = 12 };

/* Texts and special tokens in order, up to a NULL. A part that begins with '<' is a token; CHAT_BOS and CHAT_EOS are
 * those of the tokenizer. */
typedef const char *const chat_parts[CHAT_PARTS];
#define CHAT_BOS "<bos>" /* nothing, if the tokenizer has none */
#define CHAT_EOS "<eos>"

/* What stands around a content. */
typedef struct chat_turn {
    chat_parts before, after;
} chat_turn;

typedef enum chat_systems {
    CHAT_SYSTEMS_IN_PLACE,
    CHAT_SYSTEMS_JOINED, /* all of them first, with two line ends between */
    CHAT_SYSTEMS_LAST,   /* only the last one, and first */
} chat_systems;

struct dsmoe_chat_form {
    const char *name;
    chat_parts begin;
    chat_turn system, user;
    chat_parts assistant; /* before an answer; also what asks for one */
    const char *lead; /* begins every answer and belongs to it, but is not part of what is said */
    const char *end;  /* the token that ends an answer and belongs to it */
    chat_parts after; /* that token */
    chat_systems systems; /* where system messages go */
    const char *
        default_system; /* for a conversation that does not begin with a system message; NULL: none */

    /* How a template is recognised: it writes all of these and nothing else, but for what begins with '?', which it may
     * write, and what concerns tools. As chat_template.c puts such expressions. Empty: only by the form's name. */
    const char *writes[CHAT_WRITES];
    const char *mentions; /* stands in its statements; NULL: nothing in particular */
};

/* NULL if there is none of that name. */
const dsmoe_chat_form *chat_form_named(const char *name);
/* The form that a chat_template is; *form is NULL if it is none that is known. */
dsmoe_status chat_form_recognise(const char *text, size_t length, const dsmoe_chat_form **form,
                                 dsmoe_error *error);
/* Appends a chat_template (Jinja) that writes conversations in that form. */
dsmoe_status chat_form_template(const dsmoe_chat_form *form, byte_buffer *out, dsmoe_error *error);
/* The rows of the table, in which chat_template.c looks. */
extern const dsmoe_chat_form chat_forms[];
extern const size_t n_chat_forms;

/* A run of text, or a special token. */
typedef struct chat_piece {
    const char *text; /* of the form or of a message; NULL: a token */
    size_t length;
    int32_t id; /* of the token */
    size_t
        message; /* number of the message that it belongs to; the last one's for the opening of an answer */
    bool answer; /* an assistant has to write it */
} chat_piece;

typedef struct chat_pieces {
    chat_piece *at;
    size_t count, capacity;
} chat_pieces;

/* The pieces of a conversation, with the opening of an answer if asked for; a role that no form has, or a token that
 * the tokenizer lacks, is an error. chat_pieces_free in any case. */
dsmoe_status chat_form_pieces(const dsmoe_tokenizer *tokenizer, const dsmoe_chat_form *form,
                              const dsmoe_message *messages, size_t n_messages,
                              bool add_generation_prompt, chat_pieces *pieces, dsmoe_error *error);
void chat_pieces_free(chat_pieces *pieces);

/* Appends the ids of the pieces. With `answers`, an answer is encoded apart, and a byte for each id is appended there:
 * 1 if an assistant has to write it, otherwise 0. */
dsmoe_status chat_pieces_encode(const dsmoe_tokenizer *tokenizer, const chat_pieces *pieces,
                                id_buffer *ids, byte_buffer *answers, dsmoe_error *error);

#endif
