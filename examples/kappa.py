"""What κ is for: the same run with κ = 0 and with κ > 0, on the paper's instance with exact gradients.

Should print a negative slack for κ = 0 and one ≥ 0 for κ = 0.05.
"""

import clearance as cl

cmdp = cl.zoo.bai2023()
policy = cl.softmax(cmdp.S, cmdp.A)
for kappa in (0.0, 0.05):
    method = cl.CNPGPD(K=500, N=1, kappa=kappa, direction=cl.Tabular())
    sol = cl.solve(cmdp, method, policy=policy, sampler=cl.Exact(cmdp, policy))
    cert = cl.certify(cmdp, sol.policy)
    print(f"κ = {kappa:<4}  {cert.verdict:<9}  J_r = {cert.J_r:.4f}  slack = {cert.slack[0]:+.4f}")
print(f"optimum            J_r = {cl.optimum(cmdp).J_r:.4f}")
