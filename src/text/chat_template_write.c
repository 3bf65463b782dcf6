/* chat_template_write.c - writes a chat form as a chat_template (Jinja), for a model that is trained in it.
 * Other programs then write conversations as this one does. The text is always the same, so
 * chat_form_recognise() recognises it. */
#include <string.h>

#include "text/chat_form.h"

typedef struct writing {
    byte_buffer *out;
    dsmoe_error *error;
} writing;

static dsmoe_status put(const writing *w, const char *text)
{
    return byte_buffer_append(w->out, text, strlen(text), w->error);
}

/* Writes a text in quotes, as an expression. */
static dsmoe_status put_quoted(const writing *w, const char *text)
{
    STATUS_TRY(put(w, "{{ '"));
    for (; *text; text++) {
        if (*text == '\n') {
            STATUS_TRY(put(w, "\\n"));
            continue;
        }
        if (*text == '\'' || *text == '\\') STATUS_TRY(put(w, "\\"));
        STATUS_TRY(byte_buffer_append(w->out, text, 1, w->error));
    }
    return put(w, "' }}");
}

static dsmoe_status put_part(const writing *w, const char *part)
{
    if (!strcmp(part, CHAT_BOS)) return put(w, "{{ bos_token }}");
    if (!strcmp(part, CHAT_EOS)) return put(w, "{{ eos_token }}");
    return *part ? put_quoted(w, part) : DSMOE_OK;
}

static dsmoe_status put_parts(const writing *w, chat_parts parts)
{
    for (int i = 0; i < CHAT_PARTS && parts[i]; i++) STATUS_TRY(put_part(w, parts[i]));
    return DSMOE_OK;
}

/* `content` is a fixed text, or NULL for the message's content. */
static dsmoe_status put_turn(const writing *w, const chat_turn *turn, const char *content)
{
    STATUS_TRY(put_parts(w, turn->before));
    STATUS_TRY(content ? put_quoted(w, content) : put(w, "{{ message['content'] }}"));
    return put_parts(w, turn->after);
}

static dsmoe_status put_answer(const writing *w, const dsmoe_chat_form *f)
{
    STATUS_TRY(put_parts(w, f->assistant));
    STATUS_TRY(put_part(w, f->lead));
    STATUS_TRY(put(w, "{{ message['content'] }}"));
    STATUS_TRY(put_part(w, f->end));
    return put_parts(w, f->after);
}

/* Writes everything before the messages. */
static dsmoe_status put_begin(const writing *w, const dsmoe_chat_form *f)
{
    STATUS_TRY(put_parts(w, f->begin));
    if (f->default_system) {
        STATUS_TRY(put(w, "{% if messages and messages[0]['role'] != 'system' %}"));
        STATUS_TRY(put_turn(w, &f->system, f->default_system));
        STATUS_TRY(put(w, "{% endif %}"));
    }
    if (f->systems == CHAT_SYSTEMS_IN_PLACE) return DSMOE_OK;
    bool joined = f->systems == CHAT_SYSTEMS_JOINED;
    STATUS_TRY(put(w, "{% for message in messages if message['role'] == 'system' %}"));
    if (joined) STATUS_TRY(put(w, "{% if not loop.first %}{{ '\\n\\n' }}{% endif %}"));
    if (!joined) STATUS_TRY(put(w, "{% if loop.last %}"));
    STATUS_TRY(put_turn(w, &f->system, NULL));
    return put(w, joined ? "{% endfor %}" : "{% endif %}{% endfor %}");
}

dsmoe_status chat_form_template(const dsmoe_chat_form *form, byte_buffer *out, dsmoe_error *error)
{
    const writing w = {out, error};
    STATUS_TRY(put_begin(&w, form));
    STATUS_TRY(put(&w, "{% for message in messages %}{% if message['role'] == 'user' %}"));
    STATUS_TRY(put_turn(&w, &form->user, NULL));
    STATUS_TRY(put(&w, "{% elif message['role'] == 'assistant' %}"));
    STATUS_TRY(put_answer(&w, form));
    if (form->systems == CHAT_SYSTEMS_IN_PLACE) {
        STATUS_TRY(put(&w, "{% elif message['role'] == 'system' %}"));
        STATUS_TRY(put_turn(&w, &form->system, NULL));
    }
    STATUS_TRY(put(&w, "{% endif %}{% endfor %}{% if add_generation_prompt %}"));
    STATUS_TRY(put_parts(&w, form->assistant));
    return put(&w, "{% endif %}");
}
