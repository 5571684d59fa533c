# Finds routes and the most central station of a network with networkx, and draws it.
# prints: Shortest: Airport -> Center -> Harbor (17 min)
# prints: Most central: Center
# makes: network.png
import matplotlib.pyplot as plt
import networkx as nx

G = nx.Graph()
G.add_weighted_edges_from([
    ("Airport", "Center", 12), ("Center", "Harbor", 5), ("Center", "Museum", 3), ("Museum", "Park", 4),
    ("Park", "Harbor", 6), ("Airport", "Stadium", 7), ("Stadium", "Park", 9),
])
path = nx.shortest_path(G, "Airport", "Harbor", weight="weight")
minutes = nx.shortest_path_length(G, "Airport", "Harbor", weight="weight")
print(f"Shortest: {' -> '.join(path)} ({minutes} min)")
centrality = nx.betweenness_centrality(G, weight="weight")
print("Most central:", max(centrality, key=centrality.get))
print("Cycles:", len(nx.cycle_basis(G)))

positions = nx.spring_layout(G, seed=4)
nx.draw_networkx(G, positions, node_color="#a0cbe8", node_size=1500, font_size=8)
nx.draw_networkx_edge_labels(G, positions, nx.get_edge_attributes(G, "weight"))
plt.axis("off")
plt.savefig("/data/network.png", dpi=100)
