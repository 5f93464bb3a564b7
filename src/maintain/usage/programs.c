/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/usage/programs.h"

#include <string.h>

#define PROGRAMS_MAX 4096u
#define SHARES_MAX (1u << 20)
#define ACTORS_MAX (1u << 16)

static guint program_hash(const void *key)
{
    const struct wb_usage_program *program = key;

    return g_str_hash(program->name) ^ program->uid * 2654435761u;
}

static gboolean program_equal(const void *a, const void *b)
{
    const struct wb_usage_program *x = a, *y = b;

    return x->uid == y->uid && strcmp(x->name, y->name) == 0;
}

static void program_free(void *data)
{
    struct wb_usage_program *program = data;

    g_free(program->name);
    g_free(program);
}

void wb_usage_programs_init(struct wb_usage_programs *programs, struct wb_store *store)
{
    *programs = (struct wb_usage_programs){.store = store, .programs_most = PROGRAMS_MAX, .shares_left = SHARES_MAX};
    programs->all = g_ptr_array_new_with_free_func(program_free);
    programs->numbers = g_hash_table_new(program_hash, program_equal);
    programs->actors = g_hash_table_new(NULL, NULL);
}

void wb_usage_programs_deinit(struct wb_usage_programs *programs)
{
    g_hash_table_unref(programs->actors);
    g_hash_table_unref(programs->numbers);
    g_ptr_array_unref(programs->all);
}

static int number_of(struct wb_usage_programs *programs, uint32_t uid, char *name)
{
    struct wb_usage_program key = {uid, name}, *program;
    int known = GPOINTER_TO_INT(g_hash_table_lookup(programs->numbers, &key));

    if (known > 0 || programs->all->len >= programs->programs_most)
        return known - 1;
    program = g_new0(struct wb_usage_program, 1);
    *program = (struct wb_usage_program){uid, g_strdup(name)};
    g_ptr_array_add(programs->all, program);
    g_hash_table_insert(programs->numbers, program, GINT_TO_POINTER((int)programs->all->len));
    return (int)programs->all->len - 1;
}

int wb_usage_program_of(struct wb_usage_programs *programs, uint32_t actor, int64_t when)
{
    struct wb_actor info;
    uint32_t uid;
    int number;

    if (wb_store_actor_uid(programs->store, actor, when, &uid) != 0)
        return -1;
    number = GPOINTER_TO_INT(g_hash_table_lookup(programs->actors, GUINT_TO_POINTER(actor)));
    if (number > 0)
        return number - 1;
    if (wb_store_actor_info(programs->store, actor, when, &info) != 0)
        return -1;
    wb_actor_hide_arguments(&info);
    number = number_of(programs, info.uid, info.command);
    if (number < 0)
        return number;
    if (g_hash_table_size(programs->actors) >= ACTORS_MAX)
        g_hash_table_remove_all(programs->actors);
    g_hash_table_insert(programs->actors, GUINT_TO_POINTER(actor), GINT_TO_POINTER(number + 1));
    return number;
}

/* ---- shares ------------------------------------------------------------------------------------------ */

static struct wb_usage_share *share_of(struct wb_usage_programs *programs, struct wb_usage_shares *shares, int program)
{
    struct wb_usage_share *list;
    unsigned room;

    for (unsigned i = 0; i < shares->count; i++)
        if (shares->list[i].program == program)
            return &shares->list[i];
    if (shares->count == shares->room) {
        room = shares->room ? shares->room * 2 : 1;
        list = room - shares->room <= programs->shares_left ? g_try_renew(struct wb_usage_share, shares->list, room)
                                                            : NULL;
        if (!list)
            return NULL;
        programs->shares_left -= room - shares->room;
        shares->list = list;
        shares->room = room;
    }
    shares->list[shares->count] = (struct wb_usage_share){.program = program};
    return &shares->list[shares->count++];
}

void wb_usage_share(struct wb_usage_programs *programs, struct wb_usage_shares *to, int program, int64_t when,
                    uint64_t bytes)
{
    struct wb_usage_share *share = program >= 0 && bytes > 0 ? share_of(programs, to, program) : NULL;

    if (!share) {
        to->unknown += bytes;
        return;
    }
    share->bytes += bytes;
    share->newest = MAX(share->newest, when);
}

void wb_usage_shares_add(struct wb_usage_programs *programs, struct wb_usage_shares *to,
                         const struct wb_usage_shares *shares)
{
    to->unknown += shares->unknown;
    for (unsigned i = 0; i < shares->count; i++)
        wb_usage_share(programs, to, shares->list[i].program, shares->list[i].newest, shares->list[i].bytes);
}

void wb_usage_shares_clear(struct wb_usage_programs *programs, struct wb_usage_shares *shares)
{
    programs->shares_left += shares->room;
    g_free(shares->list);
    *shares = (struct wb_usage_shares){0};
}
