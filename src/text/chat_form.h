/* chat_form.h - the forms in which models read conversations: the texts and special tokens around each
 * message, and the end of an answer.
 *
 * A form is a row of a table. Commands use the form that they are given by name, or the one that the model's
 * own chat_template is recognised as (chat_template.c); a template itself is never run.
 *
 * There are two ways from a conversation to ids, and both begin with chat_form_pieces:
 *
 * - A prompt (dsmoe_chat_encode): everything between two special tokens is encoded as one text, as with the
 *   public templates, since tokens may reach across the border of frame and content.
 * - Training: chat_pieces_encode with `answers`. An answer is encoded separately from the frame around it, as
 *   a model writes it after the frame: in the form "deepseek" the frame ends with "Assistant:", and the
 *   answer's tokens are " Hello" and EOS. Ids with answers[i] set are to be written by the assistant; the
 *   others are only read. Each piece names its message, so a caller that wants to leave a message's answer
 *   out of the loss sets `answer` of its pieces to false before it encodes them. */
#ifndef DSMOE_TEXT_CHAT_FORM_H
#define DSMOE_TEXT_CHAT_FORM_H

#include "text/buffer.h"
#include "text/tokenizer.h"

enum { CHAT_PARTS = 4, CHAT_WRITES = 12 };

/* Texts and special tokens in order, up to a NULL. A part that begins with '<' is a token; CHAT_BOS and
 * CHAT_EOS are the tokenizer's own. */
typedef const char *const chat_parts[CHAT_PARTS];
#define CHAT_BOS "<bos>" /* nothing, if the tokenizer has none */
#define CHAT_EOS "<eos>"

/* The parts around a message's content. */
typedef struct chat_turn {
    chat_parts before, after;
} chat_turn;

typedef enum chat_systems {
    CHAT_SYSTEMS_IN_PLACE,
    CHAT_SYSTEMS_JOINED, /* all of them first, with two line ends between */
    CHAT_SYSTEMS_LAST,   /* only the last one, moved to the front */
} chat_systems;

struct dsmoe_chat_form {
    const char *name;
    chat_parts begin;
    chat_turn system, user;
    chat_parts assistant;       /* before an answer; also asks for one */
    const char *lead;           /* begins every answer and belongs to it, but not to its content */
    const char *end;            /* the token that ends an answer and belongs to it */
    chat_parts after;           /* after that token */
    chat_systems systems;       /* where system messages are put */
    const char *default_system; /* if the first message is not a system message; NULL: none */

    /* A template has this form if it writes all of these expressions (spelled as in chat_template.c) and
     * nothing else, apart from tools. Those that begin with '?' are optional. Empty: the form is found only
     * by its name. */
    const char *writes[CHAT_WRITES];
    const char *mentions; /* a text that its statements must contain; NULL: none */
};

/* NULL if there is none of that name. */
const dsmoe_chat_form *chat_form_named(const char *name);
/* Finds the form of a chat_template; *form is NULL if it is not a known one. */
dsmoe_status chat_form_recognise(const char *text, size_t length, const dsmoe_chat_form **form,
                                 dsmoe_error *error);
/* Appends a chat_template (Jinja) that writes conversations in that form. */
dsmoe_status chat_form_template(const dsmoe_chat_form *form, byte_buffer *out, dsmoe_error *error);
/* The rows of the table, for chat_template.c. */
extern const dsmoe_chat_form chat_forms[];
extern const size_t n_chat_forms;

/* A piece of text, or a special token. */
typedef struct chat_piece {
    const char *text; /* of the form or of a message; NULL: a token */
    size_t length;
    int32_t id;     /* of the token */
    size_t message; /* its message's index; the last one's for the opening of an answer */
    bool answer;    /* to be written by the assistant */
} chat_piece;

typedef struct chat_pieces {
    chat_piece *at;
    size_t count, capacity;
} chat_pieces;

/* Makes the pieces of a conversation, with the opening of an answer if add_generation_prompt is true. An
 * unknown role, or a token that the tokenizer lacks, is an error. Call chat_pieces_free in any case. */
dsmoe_status chat_form_pieces(const dsmoe_tokenizer *tokenizer, const dsmoe_chat_form *form,
                              const dsmoe_message *messages, size_t n_messages,
                              bool add_generation_prompt, chat_pieces *pieces, dsmoe_error *error);
void chat_pieces_free(chat_pieces *pieces);

/* Appends the ids of the pieces. With `answers`, answers are encoded separately, and a byte for each id is
 * appended there: 1 if the assistant has to write it, otherwise 0. */
dsmoe_status chat_pieces_encode(const dsmoe_tokenizer *tokenizer, const chat_pieces *pieces,
                                id_buffer *ids, byte_buffer *answers, dsmoe_error *error);

#endif
