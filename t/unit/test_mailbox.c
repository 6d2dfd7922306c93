
/*
 * The mailbox: many threads post, a single thread takes.  No message is lost,
 * each thread's messages keep the order, and the descriptor is readable when
 * there are messages.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mailbox.h"


#define POSTERS   8
#define LETTERS   20000


typedef struct {
    zkl_message_t  message;        /* first, so that a cast is enough */
    unsigned       poster;
    unsigned       number;
} letter_t;


typedef struct {
    zkl_mailbox_t  *mailbox;
    letter_t       *letters;
    unsigned        poster;
} poster_t;


typedef struct {
    zkl_mailbox_t  *mailbox;
    letter_t       *answer;     /* is posted by the first delivery */
    unsigned        next[POSTERS];
    unsigned        taken;
    unsigned        disorder;
} receiver_t;


static int
readable(zkl_mailbox_t *mailbox, int ms)
{
    struct pollfd  pfd;

    pfd.fd = mailbox->fd;
    pfd.events = POLLIN;
    pfd.revents = 0;

    return poll(&pfd, 1, ms) == 1 && (pfd.revents & POLLIN);
}


static void
deliver(zkl_message_t *message, void *data)
{
    letter_t    *letter = (letter_t *) message;
    receiver_t  *receiver = data;

    if (letter->number != receiver->next[letter->poster]) {
        receiver->disorder++;
    }

    receiver->next[letter->poster] = letter->number + 1;
    receiver->taken++;

    if (receiver->answer != NULL) {
        letter = receiver->answer;
        receiver->answer = NULL;

        zkl_mailbox_post_foreign(receiver->mailbox, &letter->message);
    }

    /* the message is the receiver's, and so the receiver may overwrite it */

    memset(message, 0xee, sizeof(zkl_message_t));
}


static void
address(letter_t *letter, unsigned poster, unsigned number)
{
    memset(letter, 0, sizeof(letter_t));

    letter->message.deliver = deliver;
    letter->message.next = (zkl_message_t *) letter;
    letter->poster = poster;
    letter->number = number;
}


static void *
post(void *data)
{
    unsigned   i;
    poster_t  *poster = data;

    for (i = 0; i < LETTERS; i++) {
        zkl_mailbox_post_foreign(poster->mailbox, &poster->letters[i].message);

        if (i % 97 == 0) {
            (void) sched_yield();
        }
    }

    return NULL;
}


static void
test_threads(void **state)
{
    unsigned       i, n;
    pthread_t      threads[POSTERS];
    poster_t       posters[POSTERS];
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    assert_int_equal(zkl_mailbox_init(&mailbox, -1), 0);

    for (i = 0; i < POSTERS; i++) {
        posters[i].mailbox = &mailbox;
        posters[i].poster = i;
        posters[i].letters = malloc(LETTERS * sizeof(letter_t));
        assert_non_null(posters[i].letters);

        for (n = 0; n < LETTERS; n++) {
            address(&posters[i].letters[n], i, n);
        }
    }

    for (i = 0; i < POSTERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post, &posters[i]),
                                        0);
    }

    /* if a wake-up is lost, this loop ends by the timeout */

    while (receiver.taken < POSTERS * LETTERS) {

        if (!readable(&mailbox, 10000)) {
            fail_msg("no wake-up after %u letters", receiver.taken);
        }

        (void) zkl_mailbox_take(&mailbox, &receiver);
    }

    for (i = 0; i < POSTERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(receiver.next[i], LETTERS);
        free(posters[i].letters);
    }

    assert_int_equal(receiver.disorder, 0);
    assert_int_equal(receiver.taken, POSTERS * LETTERS);

    /* a wake-up for a letter that was taken before may be late, once */

    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 0);
    assert_false(readable(&mailbox, 0));

    zkl_mailbox_done(&mailbox);
}


static void
test_descriptor(void **state)
{
    letter_t       letters[3];
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    address(&letters[0], 0, 0);
    address(&letters[1], 0, 1);
    address(&letters[2], 0, 2);

    assert_int_equal(zkl_mailbox_init(&mailbox, -1), 0);

    assert_false(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 0);
    assert_false(readable(&mailbox, 0));

    zkl_mailbox_post_foreign(&mailbox, &letters[0].message);
    assert_true(readable(&mailbox, 0));

    zkl_mailbox_post_foreign(&mailbox, &letters[1].message);
    assert_true(readable(&mailbox, 0));

    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 2);
    assert_false(readable(&mailbox, 0));

    zkl_mailbox_post_foreign(&mailbox, &letters[2].message);
    assert_true(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 1);
    assert_false(readable(&mailbox, 0));

    assert_int_equal(receiver.disorder, 0);
    assert_int_equal(receiver.taken, 3);

    zkl_mailbox_done(&mailbox);
}


/* all messages posted before a wake-up share the wake-up and system call */

static void
test_one_wake_up(void **state)
{
    uint64_t       count;
    unsigned       i;
    letter_t       letters[5];
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    assert_int_equal(zkl_mailbox_init(&mailbox, -1), 0);

    for (i = 0; i < 5; i++) {
        address(&letters[i], 0, i);
        zkl_mailbox_post_foreign(&mailbox, &letters[i].message);
    }

    assert_int_equal(read(mailbox.fd, &count, sizeof(uint64_t)),
                     sizeof(uint64_t));
    assert_int_equal(count, 1);

    /* zkl_mailbox_take() does not depend on the descriptor */

    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 5);
    assert_int_equal(receiver.disorder, 0);

    zkl_mailbox_done(&mailbox);
}


static void
test_post_from_delivery(void **state)
{
    letter_t       letters[2];
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    address(&letters[0], 0, 0);
    address(&letters[1], 0, 1);

    assert_int_equal(zkl_mailbox_init(&mailbox, -1), 0);

    receiver.mailbox = &mailbox;
    receiver.answer = &letters[1];

    zkl_mailbox_post_foreign(&mailbox, &letters[0].message);

    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 1);
    assert_true(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 1);
    assert_false(readable(&mailbox, 0));

    assert_int_equal(receiver.disorder, 0);

    zkl_mailbox_done(&mailbox);
}


/* another process has written to the descriptor: the loop still wakes up */

static void
test_drain(void **state)
{
    uint64_t       one;
    letter_t       letter;
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    address(&letter, 0, 0);

    assert_int_equal(zkl_mailbox_init(&mailbox, -1), 0);

    one = 1;
    assert_int_equal(write(mailbox.fd, &one, sizeof(uint64_t)),
                     sizeof(uint64_t));

    zkl_mailbox_post_foreign(&mailbox, &letter.message);

    assert_int_equal(zkl_mailbox_drain(&mailbox, &receiver), 1);
    assert_true(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 0);
    assert_false(readable(&mailbox, 0));

    zkl_mailbox_done(&mailbox);
}


/* an eventfd from the caller, with a count that is not 0 at first */

static void
test_given_descriptor(void **state)
{
    int            fd;
    letter_t       letter;
    receiver_t     receiver;
    zkl_mailbox_t  mailbox;

    (void) state;

    memset(&receiver, 0, sizeof(receiver_t));
    address(&letter, 0, 0);

    fd = eventfd(5, EFD_NONBLOCK|EFD_CLOEXEC);
    assert_int_not_equal(fd, -1);

    assert_int_equal(zkl_mailbox_init(&mailbox, fd), 0);
    assert_int_equal(mailbox.fd, fd);

    assert_true(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 0);
    assert_false(readable(&mailbox, 0));

    zkl_mailbox_post_foreign(&mailbox, &letter.message);
    assert_true(readable(&mailbox, 0));
    assert_int_equal(zkl_mailbox_take(&mailbox, &receiver), 1);

    zkl_mailbox_done(&mailbox);
    assert_int_equal(mailbox.fd, -1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_one_wake_up),
        cmocka_unit_test(test_post_from_delivery),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_given_descriptor),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
