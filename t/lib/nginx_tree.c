
/*
 * nginx's trees, for what runs without nginx: the simulation of gateways, and
 * the tests of parts that have trees.
 *
 * Written again, as plainly as can be: the trees are not balanced.  The
 * structures are nginx's own, and so are the inline functions of the headers.
 */


#include <ngx_config.h>
#include <ngx_core.h>


static void tree_put(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel,
    int (*before)(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two));
static int tree_key_before(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two);
static int tree_str_compare(ngx_str_t *one, ngx_str_t *two);
static int tree_str_before(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two);


void
ngx_rbtree_insert(ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
{
    if (tree->root == tree->sentinel) {
        node->parent = NULL;
        node->left = tree->sentinel;
        node->right = tree->sentinel;
        tree->root = node;
        return;
    }

    tree->insert(tree->root, node, tree->sentinel);
}


static void
tree_put(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel,
    int (*before)(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two))
{
    ngx_rbtree_node_t  **p;

    for ( ;; ) {
        p = before(node, temp) ? &temp->left : &temp->right;

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;
    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;
}


static int
tree_key_before(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two)
{
    return one->key < two->key;
}


void
ngx_rbtree_insert_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    tree_put(temp, node, sentinel, tree_key_before);
}


void
ngx_rbtree_insert_timer_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    ngx_rbtree_insert_value(temp, node, sentinel);
}


void
ngx_rbtree_delete(ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
{
    ngx_rbtree_node_t  *next, *parent, **place;

    parent = node->parent;

    if (parent == NULL) {
        place = &tree->root;

    } else {
        place = (parent->left == node) ? &parent->left : &parent->right;
    }

    if (node->left == tree->sentinel || node->right == tree->sentinel) {
        next = (node->left == tree->sentinel) ? node->right : node->left;

        *place = next;

        if (next != tree->sentinel) {
            next->parent = parent;
        }

        return;
    }

    /* the next node takes the place */

    next = ngx_rbtree_min(node->right, tree->sentinel);

    ngx_rbtree_delete(tree, next);

    next->parent = parent;
    next->left = node->left;
    next->right = node->right;
    *place = next;

    if (next->left != tree->sentinel) {
        next->left->parent = next;
    }

    if (next->right != tree->sentinel) {
        next->right->parent = next;
    }
}


ngx_rbtree_node_t *
ngx_rbtree_next(ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
{
    if (node->right != tree->sentinel) {
        return ngx_rbtree_min(node->right, tree->sentinel);
    }

    while (node->parent != NULL && node == node->parent->right) {
        node = node->parent;
    }

    return node->parent;
}


static int
tree_str_compare(ngx_str_t *one, ngx_str_t *two)
{
    if (one->len != two->len) {
        return (one->len < two->len) ? -1 : 1;
    }

    return ngx_memcmp(one->data, two->data, one->len);
}


static int
tree_str_before(ngx_rbtree_node_t *one, ngx_rbtree_node_t *two)
{
    return one->key != two->key
           ? one->key < two->key
           : tree_str_compare(&((ngx_str_node_t *) one)->str,
                              &((ngx_str_node_t *) two)->str)
             < 0;
}


void
ngx_str_rbtree_insert_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    tree_put(temp, node, sentinel, tree_str_before);
}


ngx_str_node_t *
ngx_str_rbtree_lookup(ngx_rbtree_t *rbtree, ngx_str_t *name, uint32_t hash)
{
    int                 rc;
    ngx_rbtree_node_t  *node;

    node = rbtree->root;

    while (node != rbtree->sentinel) {

        if (hash != node->key) {
            node = (hash < node->key) ? node->left : node->right;
            continue;
        }

        rc = tree_str_compare(name, &((ngx_str_node_t *) node)->str);

        if (rc == 0) {
            return (ngx_str_node_t *) node;
        }

        node = (rc < 0) ? node->left : node->right;
    }

    return NULL;
}
