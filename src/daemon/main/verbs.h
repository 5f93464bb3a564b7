/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * `wayback VERB ...`: one command for all that Wayback does. A verb is another name of a tool, which is executed in
 * place of this process with "wayback VERB" as its name; or it is answered here.
 */

struct wb_verb;

/* The verb of that name, or NULL. */
const struct wb_verb *wb_verb_find(const char *word);

/* Results of wb_verb_run: the caller is to mount what argv + 1 says, or to explain how that is done. */
enum { WB_VERB_MOUNT = -1, WB_VERB_EXPLAIN = -2 };

/*
 * Carries it out: argv[0] is this program, argv[1] the verb. Returns WB_VERB_*, or the exit status to end with; or not
 * at all, if a tool takes the place of this process.
 */
int wb_verb_run(const struct wb_verb *verb, int argc, char **argv);

/* The verb that `word` may be meant for, or NULL. */
const char *wb_verb_guess(const char *word);
